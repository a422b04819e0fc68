/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lines about writing that takes its time: none before a second has gone by. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>
#include <unistd.h>
#include "progress.h"

static uint64_t left(void *arg)
{
	return *(uint64_t *)arg;
}

/* What is printed while the writing takes that long. */
static const char *lines_of(unsigned int ms)
{
	static char text[256];
	uint64_t bytes = 5 << 20;
	struct progress progress = {.what = "disk.img", .left = left, .arg = &bytes};
	int fds[2], out = dup(STDOUT_FILENO);
	ssize_t n;

	cr_assert_eq(pipe(fds), 0);
	dup2(fds[1], STDOUT_FILENO);
	progress_begin(&progress);
	usleep(ms * 1000);
	progress_end(&progress);
	dup2(out, STDOUT_FILENO);
	close(out);
	close(fds[1]);
	n = read(fds[0], text, sizeof(text) - 1);
	close(fds[0]);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

struct duration {
	unsigned int ms;
	char lines[64];
};

static struct duration durations[] = {
	{0, ""},
	{500, ""},
	{2000, "foliofs: writing disk.img back: 5 MiB left\n"},
};

ParameterizedTestParameters(progress, lines)
{
	return cr_make_param_array(struct duration, durations,
				   sizeof(durations) / sizeof(*durations));
}

ParameterizedTest(struct duration *d, progress, lines)
{
	cr_assert_str_eq(lines_of(d->ms), d->lines);
}
