/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The command line: values reach their place, and what is wrong is told in one line. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <criterion/redirect.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "options.h"

#define ARGS_MOST 16

static char words[256];

/* Parses a command line given as one string. */
static int parse(struct options *options, const char *line)
{
	char *argv[ARGS_MOST], *save = NULL;
	int argc = 0;

	snprintf(words, sizeof(words), "%s", line);
	for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	return options_parse(options, argc, argv);
}

#define FIELD(f) offsetof(struct options, f), sizeof(((struct options *)0)->f)

struct value_case {
	char list[64];
	size_t offset, size;
	uint64_t value;
};

ParameterizedTestParameters(options, value)
{
	static struct value_case cases[] = {
		{"ro", FIELD(ro), true},
		{"ro,rw", FIELD(ro), false},
		{"raw", FIELD(raw), true},
		{"offset=1", FIELD(offset), 1},
		{"offset=0x100", FIELD(offset), 256},
		{"offset=1M", FIELD(offset), 1 << 20},
		{"offset=010", FIELD(offset), 10},
		{"cache_size=16M", FIELD(cache_size), 16 << 20},
		{"cache_size=64m", FIELD(cache_size), 64 << 20},
		{"cache_size=8192K", FIELD(cache_size), 8 << 20},
		{"cache_size=2G", FIELD(cache_size), 2ULL << 30},
		{"readahead=256K", FIELD(readahead), 256 << 10},
		{"readahead=0", FIELD(readahead), 0},
		{"cache_size=1T", FIELD(cache_size), 1ULL << 40},
		{"direct_io", FIELD(direct_io), true},
		{"ro", FIELD(commit), 5},
		{"commit=30", FIELD(commit), 30},
		{"commit=0", FIELD(commit), 5},
		{"ro", FIELD(errors), ERRORS_DEFAULT},
		{"errors=continue", FIELD(errors), ERRORS_CONTINUE},
		{"errors=remount-ro", FIELD(errors), ERRORS_REMOUNT_RO},
		{"errors=panic", FIELD(errors), ERRORS_PANIC},
		{"norecovery", FIELD(norecovery), true},
		{"norecovery", FIELD(ro), true},
		{"noload", FIELD(norecovery), true},
		{"fakeroot", FIELD(fakeroot), true},
		{"uid=1000", FIELD(uid), 1000},
		{"uid=1000", FIELD(set_uid), true},
		{"gid=0", FIELD(set_gid), true},
		{"ro", FIELD(set_gid), false},
		{"ro", FIELD(acl), true},
		{"noacl", FIELD(acl), false},
		{"minixdf", FIELD(minixdf), true},
		{"minixdf,bsddf", FIELD(minixdf), false},
		{"spin=0", FIELD(spin), 0},
		{"spin=200", FIELD(spin), 200},
		{"debug", FIELD(foreground), true},
		{"allow_other", FIELD(allow_other), true},
		{"no_default_opts,fakeroot", FIELD(fakeroot), true},
		{"nonempty,user_xattr,directio,ro", FIELD(ro), true},
		{"x-gvfs-show,ro", FIELD(ro), true},
		{",,ro,", FIELD(ro), true},
	};

	return cr_make_param_array(struct value_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct value_case *c, options, value)
{
	struct options options;
	uint64_t value = 0;
	char line[128];

	snprintf(line, sizeof(line), "foliofs -o %s img mnt", c->list);
	cr_assert_eq(parse(&options, line), 0, "%s", c->list);
	memcpy(&value, (char *)&options + c->offset, c->size);
	cr_expect_eq(value, c->value, "%s gave %llu", c->list, (unsigned long long)value);
	cr_expect_str_eq(options.image, "img");
	cr_expect_str_eq(options.mountpoint, "mnt");
	options_finish(&options);
}

struct refusal {
	char line[64], message[80];
};

ParameterizedTestParameters(options, refusal)
{
	static struct refusal cases[] = {
		{"foliofs", "the image is missing"},
		{"foliofs img", "the mount point is missing"},
		{"foliofs img mnt more", "'more' is one argument too many"},
		{"foliofs -x img mnt", "unknown option '-x'"},
		{"foliofs --wrong img mnt", "unknown option '--wrong'"},
		{"foliofs -o wrong img mnt", "unknown option 'wrong'"},
		{"foliofs -o wrong=1 img mnt", "unknown option 'wrong=1'"},
		{"foliofs -o r img mnt", "unknown option 'r'"},
		{"foliofs -o roo img mnt", "unknown option 'roo'"},
		{"foliofs img mnt -o", "unknown option '-o'"},
		{"foliofs -o ro=1 img mnt", "option ro takes no value"},
		{"foliofs -o offset img mnt", "option offset needs a value"},
		{"foliofs -o offset= img mnt", "not ''"},
		{"foliofs -o offset=x img mnt", "not 'x'"},
		{"foliofs -o offset=-1 img mnt", "not '-1'"},
		{"foliofs -o offset=1Q img mnt", "not '1Q'"},
		{"foliofs -o offset=1MM img mnt", "not '1MM'"},
		{"foliofs -o offset=9999999999999999999 img mnt", "option offset needs"},
		{"foliofs -o cache_size=99999999T img mnt", "option cache_size needs"},
		{"foliofs -o cache_size=1M img mnt", "option cache_size needs at least 4M"},
		{"foliofs -o commit=-1 img mnt", "not '-1'"},
		{"foliofs -o commit=1s img mnt", "not '1s'"},
		{"foliofs -o commit=99999 img mnt", "a number from 0 to 86400"},
		{"foliofs -o errors=maybe img mnt", "continue, remount-ro or panic"},
		{"foliofs -o uid=root img mnt", "not 'root'"},
		{"foliofs -o uid=4294967295 img mnt", "option uid needs"},
		{"foliofs -o lockfile= img mnt", "option lockfile needs"},
	};

	return cr_make_param_array(struct refusal, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct refusal *c, options, refusal)
{
	struct options options;
	char text[512] = "";
	size_t len;

	cr_redirect_stderr();
	cr_expect_lt(parse(&options, c->line), 0, "%s was accepted", c->line);
	options_finish(&options);
	fflush(stderr);
	len = fread(text, 1, sizeof(text) - 1, cr_get_redirected_stderr());
	cr_assert_gt(len, 0);
	cr_expect(strstr(text, c->message), "%s: said '%s'", c->line, text);
	cr_expect_eq(strchr(text, '\n'), text + len - 1, "not one line: '%s'", text);
}

Test(options, a_space_is_no_unit)
{
	char *argv[] = {"foliofs", "-o", "offset=1 ", "img", "mnt"};
	struct options options;

	cr_redirect_stderr();
	cr_expect_lt(options_parse(&options, 5, argv), 0);
	options_finish(&options);
}

struct fuse_case {
	char list[64], expected[64];
};

ParameterizedTestParameters(options, fuse)
{
	static struct fuse_case cases[] = {
		{"allow_other", "allow_other"},
		{"suid,ro,dev", "suid,dev"},
		{"fsname=disk", "fsname=disk"},
		{"max_read=65536,nosuid", "max_read=65536,nosuid"},
	};

	return cr_make_param_array(struct fuse_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct fuse_case *c, options, fuse)
{
	struct options options;
	char line[128];

	snprintf(line, sizeof(line), "foliofs img mnt -o%s", c->list);
	cr_assert_eq(parse(&options, line), 0);
	cr_assert_not_null(options.fuse_opts);
	cr_expect_str_eq(options.fuse_opts, c->expected);
	options_finish(&options);
}

Test(options, default_cache_size_is_bounded)
{
	struct options options;

	cr_assert_eq(parse(&options, "foliofs img mnt"), 0);
	cr_expect_geq(options.cache_size, 16ULL << 20);
	cr_expect_leq(options.cache_size, 1ULL << 30);
}

Test(options, letters_join)
{
	struct options options;

	cr_assert_eq(parse(&options, "foliofs -fr img mnt"), 0);
	cr_expect(options.foreground && options.ro);
}

Test(options, help_and_version_need_no_image)
{
	struct options options;

	cr_expect_eq(parse(&options, "foliofs -h"), 0);
	cr_expect(options.help);
	cr_expect_eq(parse(&options, "foliofs --version"), 0);
	cr_expect(options.version);
}

Test(options, names_behind_two_dashes)
{
	struct options options;

	cr_assert_eq(parse(&options, "foliofs -- -img mnt"), 0);
	cr_expect_str_eq(options.image, "-img");
}

Test(options, comma_in_a_value_is_escaped)
{
	struct options options;

	cr_assert_eq(parse(&options, "foliofs -o lockfile=a\\,b,ro img mnt"), 0);
	cr_expect_str_eq(options.lockfile, "a,b");
	cr_expect(options.ro);
	options_finish(&options);
}

Test(options, help_names_every_documented_option)
{
	static const char *const names[] = {
		"ro", "raw", "offset=BYTES", "cache_size=BYTES", "readahead=BYTES", "direct_io", "commit=SECONDS",
		"errors", "norecovery", "fakeroot", "uid=ID", "gid=ID", "allow_other", "spin=",
		"minixdf", "lockfile=", "noload", "default_permissions",
	};
	char text[8192];
	size_t len;

	cr_redirect_stdout();
	options_print_help();
	fflush(stdout);
	len = fread(text, 1, sizeof(text) - 1, cr_get_redirected_stdout());
	text[len] = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		cr_expect(strstr(text, names[i]), "no %s", names[i]);
	cr_expect_null(strstr(text, "fuse2fs_debug"));
}
