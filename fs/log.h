/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Messages for people: "foliofs: ..." one line each; warnings to stdout (as image tools' callers
 * take anything on stderr for an error), errors to stderr; to syslog once in the background. */
#ifndef FOLIOFS_LOG_H
#define FOLIOFS_LOG_H

void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* After daemon(): messages go to syslog from here on. */
void log_background(void);

#endif
