/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Messages for people, one line each and written at once, so that lines of several threads do not
 * mix. Once in the background they go to syslog.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>
#include "log.h"

static bool background;

static void emit(int fd, int priority, const char *fmt, va_list ap)
{
	static const char prefix[] = "foliofs: ";
	char line[1024];
	size_t len = sizeof(prefix) - 1;

	memcpy(line, prefix, len);
	vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);
	if (background) {
		syslog(priority, "%s", line + len);
		return;
	}
	len = strlen(line);
	line[len++] = '\n';
	/* Nothing can be told when telling fails. */
	if (write(fd, line, len) < 0)
		return;
}

#define LOG_BODY(fd, priority)		\
	va_list ap;			\
					\
	va_start(ap, fmt);		\
	emit(fd, priority, fmt, ap);	\
	va_end(ap)

/**
 * log_error() - a line on standard error
 * @fmt: as for printf(), without a newline
 *
 * Context: any thread.
 */
void log_error(const char *fmt, ...)
{
	LOG_BODY(STDERR_FILENO, LOG_ERR);
}

/**
 * log_warn() - a warning, on standard output
 * @fmt: as for printf(), without a newline
 *
 * Context: any thread.
 */
void log_warn(const char *fmt, ...)
{
	LOG_BODY(STDOUT_FILENO, LOG_WARNING);
}

/**
 * log_info() - something good to know, on standard output
 * @fmt: as for printf(), without a newline
 *
 * Context: any thread.
 */
void log_info(const char *fmt, ...)
{
	LOG_BODY(STDOUT_FILENO, LOG_INFO);
}

/**
 * log_background() - from here on, to syslog
 *
 * Context: before threads that log are many; the switch itself is one store.
 */
void log_background(void)
{
	openlog("foliofs", LOG_PID, LOG_DAEMON);
	background = true;
}
