/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The command line. One table says for each -o option its name, the kind of value, where that
 * goes and what -h tells of it; parsing, help and messages are made from it. Options of the FUSE
 * library and of mount(8) are rows, too: what is in no row is refused.
 */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "log.h"
#include "options.h"

#define MIB (1ULL << 20)
#define CACHE_SIZE_LEAST (4 * MIB)
#define CACHE_DEFAULT_LEAST (16 * MIB)
#define CACHE_DEFAULT_MOST (1024 * MIB)
#define READAHEAD_DEFAULT MIB
#define COMMIT_DEFAULT 5
#define SPIN_DEFAULT 50
#define SPIN_MOST 100000

enum kind {
	KIND_SET,	/* bool: true */
	KIND_CLEAR,	/* bool: false */
	KIND_SIZE,	/* uint64_t: bytes, with K, M, G or T */
	KIND_NUMBER,	/* unsigned int, up to ->most */
	KIND_ID,	/* uid_t or gid_t, and the bool at ->also */
	KIND_STRING,	/* char *, to be freed */
	KIND_ERRORS,	/* enum errors_policy */
	KIND_FUSE,	/* goes on to the FUSE library, with a value or not */
	KIND_NOTHING,	/* accepted for the sake of others' scripts, with a value or not */
};

struct row {
	const char *name;
	enum kind kind;
	size_t target;
	const char *value, *help;
	size_t also;		/* a further bool to set; 0, where no bool is: none */
	unsigned int most;
};

#define AT(field) .target = offsetof(struct options, field)
#define ALSO(field) .also = offsetof(struct options, field)
#define ROW(text, what, ...) {.name = text, .kind = KIND_##what, ##__VA_ARGS__}
#define HELP(text) .help = text
#define VALUE(of, text) .value = of, .help = text

static const struct row rows[] = {
	ROW("ro", SET, AT(ro), HELP("mount read-only")),
	ROW("rw", CLEAR, AT(ro), HELP("mount read-write (the default)")),
	ROW("raw", SET, AT(raw), HELP("show the image as one file of its name")),
	ROW("offset", SIZE, AT(offset), VALUE("BYTES", "the image starts there in the file")),
	ROW("cache_size", SIZE, AT(cache_size),
	    VALUE("BYTES", "bound of the cache (an eighth of memory, 16M to 1G)")),
	ROW("readahead", SIZE, AT(readahead),
	    VALUE("BYTES", "read at most that far ahead of a reader (1M; 0: do not)")),
	ROW("direct_io", SET, AT(direct_io), HELP("do not let the kernel cache files as well")),
	ROW("commit", NUMBER, AT(commit), VALUE("SECONDS", "write back what is older (5)"),
	    .most = 86400),
	ROW("errors", ERRORS, AT(errors),
	    VALUE("POLICY", "on damage: continue, remount-ro or panic (the image tells)")),
	ROW("norecovery", SET, AT(norecovery), ALSO(ro),
	    HELP("leave the journal alone (implies ro)")),
	ROW("noload", SET, AT(norecovery), ALSO(ro), HELP("the same")),
	ROW("fakeroot", SET, AT(fakeroot), HELP("everybody may do what root may")),
	ROW("uid", ID, AT(uid), ALSO(set_uid), VALUE("ID", "show all files as owned by this user")),
	ROW("gid", ID, AT(gid), ALSO(set_gid),
	    VALUE("ID", "show all files as owned by this group")),
	ROW("acl", SET, AT(acl), HELP("honour POSIX ACLs (the default)")),
	ROW("noacl", CLEAR, AT(acl), HELP("do not")),
	ROW("minixdf", SET, AT(minixdf), HELP("df counts metadata as space, too")),
	ROW("bsddf", CLEAR, AT(minixdf), HELP("df does not (the default)")),
	ROW("spin", NUMBER, AT(spin), .most = SPIN_MOST,
	    VALUE("MICROSECONDS", "look that long for a request before sleeping (50; 0: off)")),
	ROW("lockfile", STRING, AT(lockfile),
	    VALUE("FILE", "make FILE while mounted; it must not exist")),
	ROW("debug", SET, AT(debug), HELP("as -d")),
	ROW("fuse2fs_debug", SET, AT(debug)),
	ROW("default_permissions", SET, AT(default_permissions),
	    HELP("let the kernel check permissions (the default without fakeroot)")),
	ROW("allow_other", FUSE, ALSO(allow_other), HELP("let other users in")),
	ROW("allow_root", FUSE, HELP("let root in")),
	ROW("auto_unmount", FUSE, HELP("unmount when the daemon dies")),
	ROW("fsname", FUSE, VALUE("NAME", "source in the mount table (the image)")),
	ROW("subtype", FUSE, VALUE("NAME", "type in the mount table (foliofs)")),
	ROW("max_read", FUSE, VALUE("BYTES", "largest read request")),
	ROW("suid", FUSE),
	ROW("nosuid", FUSE),
	ROW("dev", FUSE),
	ROW("nodev", FUSE),
	ROW("exec", FUSE),
	ROW("noexec", FUSE),
	ROW("sync", FUSE),
	ROW("async", FUSE),
	ROW("dirsync", FUSE),
	ROW("atime", FUSE),
	ROW("noatime", FUSE),
	ROW("context", FUSE),
	ROW("fscontext", FUSE),
	ROW("defcontext", FUSE),
	ROW("rootcontext", FUSE),
	ROW("no_default_opts", NOTHING),
	ROW("directio", NOTHING),
	ROW("user_xattr", NOTHING),
	ROW("noblock_validity", NOTHING),
	ROW("nodelalloc", NOTHING),
	ROW("kernel_cache", NOTHING),
	ROW("use_ino", NOTHING),
	ROW("nonempty", NOTHING),
	ROW("defaults", NOTHING),
	ROW("auto", NOTHING),
	ROW("noauto", NOTHING),
	ROW("nofail", NOTHING),
	ROW("user", NOTHING),
	ROW("users", NOTHING),
	ROW("nouser", NOTHING),
	ROW("_netdev", NOTHING),
};

#define NR_ROWS (sizeof(rows) / sizeof(rows[0]))

static bool takes_value(enum kind kind)
{
	return kind >= KIND_SIZE && kind <= KIND_ERRORS;
}

static int bad_value(const struct row *row, const char *value, const char *wanted)
{
	log_error("option %s needs %s, not '%s'", row->name, wanted, value);
	return -EINVAL;
}

static bool parse_number(const char *text, unsigned long long *number, const char **end)
{
	int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
	char *stop;

	if (text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*number = strtoull(text, &stop, base);
	*end = stop;
	return errno == 0;
}

static bool parse_size(const char *text, uint64_t *size)
{
	static const char units[] = "KMGT";
	unsigned long long number;
	const char *end, *unit;
	unsigned int shift = 0;

	if (!parse_number(text, &number, &end))
		return false;
	if (*end) {
		unit = *end == ' ' ? NULL : strchr(units, *end & ~('a' ^ 'A'));
		if (!unit || end[1])
			return false;
		shift = 10 * (unit - units + 1);
	}
	if (number > (uint64_t)INT64_MAX >> shift)
		return false;
	*size = (uint64_t)number << shift;
	return true;
}

static int set_errors(const struct row *row, enum errors_policy *policy, const char *value)
{
	static const char *const names[] = {
		[ERRORS_CONTINUE] = "continue",
		[ERRORS_REMOUNT_RO] = "remount-ro",
		[ERRORS_PANIC] = "panic",
	};

	for (unsigned int i = ERRORS_CONTINUE; i <= ERRORS_PANIC; i++) {
		if (!strcmp(value, names[i])) {
			*policy = i;
			return 0;
		}
	}
	return bad_value(row, value, "continue, remount-ro or panic");
}

static int add_fuse_opt(struct options *options, const char *opt)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s", options->fuse_opts ?: "", options->fuse_opts ? "," : "",
		     opt) < 0)
		return -ENOMEM;
	free(options->fuse_opts);
	options->fuse_opts = joined;
	return 0;
}

static int set_number(const struct row *row, unsigned int *target, const char *value,
		      unsigned int most)
{
	unsigned long long number;
	const char *end;
	char wanted[64];

	if (parse_number(value, &number, &end) && !*end && number <= most) {
		*target = number;
		return 0;
	}
	snprintf(wanted, sizeof(wanted), "a number from 0 to %u", most);
	return bad_value(row, value, wanted);
}

static int set_string(char **target, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*target);
	*target = copy;
	return 0;
}

/* @opt is the whole text, @value what is behind '=', or NULL. */
static int apply(struct options *options, const struct row *row, const char *opt, const char *value)
{
	char *target = (char *)options + row->target;

	if (row->also)
		*((bool *)((char *)options + row->also)) = true;
	switch (row->kind) {
	case KIND_SET:
	case KIND_CLEAR:
		*(bool *)target = row->kind == KIND_SET;
		return 0;
	case KIND_SIZE:
		if (parse_size(value, (uint64_t *)target))
			return 0;
		return bad_value(row, value, "a number of bytes, such as 64M");
	case KIND_NUMBER:
		return set_number(row, (unsigned int *)target, value, row->most);
	case KIND_ID:
		return set_number(row, (unsigned int *)target, value, UINT_MAX - 1);
	case KIND_STRING:
		if (!*value)
			return bad_value(row, value, "a name");
		return set_string((char **)target, value);
	case KIND_ERRORS:
		return set_errors(row, (enum errors_policy *)target, value);
	case KIND_FUSE:
		return add_fuse_opt(options, opt);
	case KIND_NOTHING:
		return 0;
	}
	return -EINVAL;
}

static const struct row *find_row(const char *name, size_t len)
{
	for (size_t i = 0; i < NR_ROWS; i++) {
		if (!strncmp(rows[i].name, name, len) && !rows[i].name[len])
			return &rows[i];
	}
	return NULL;
}

static int parse_one(struct options *options, const char *opt)
{
	size_t len = strcspn(opt, "=");
	const char *value = opt[len] ? opt + len + 1 : NULL;
	const struct row *row = find_row(opt, len);

	if (!len || !strncmp(opt, "x-", 2))
		return 0;
	if (!row) {
		log_error("unknown option '%s' (foliofs -h lists them)", opt);
		return -EINVAL;
	}
	if (takes_value(row->kind) && !value) {
		log_error("option %s needs a value", row->name);
		return -EINVAL;
	}
	if (value && (row->kind == KIND_SET || row->kind == KIND_CLEAR)) {
		log_error("option %s takes no value", row->name);
		return -EINVAL;
	}
	return apply(options, row, opt, value);
}

/* A list with commas between; a backslash takes the next character for what it is. */
static int parse_list(struct options *options, const char *list)
{
	char *one = malloc(strlen(list) + 1);
	int ret = 0;

	if (!one)
		return -ENOMEM;
	while (*list && !ret) {
		size_t len = 0;

		while (*list && *list != ',') {
			if (*list == '\\' && list[1])
				list++;
			one[len++] = *list++;
		}
		one[len] = '\0';
		if (*list == ',')
			list++;
		ret = parse_one(options, one);
	}
	free(one);
	return ret;
}

static int positional(struct options *options, const char *arg)
{
	if (!options->image) {
		options->image = arg;
	} else if (!options->mountpoint) {
		options->mountpoint = arg;
	} else {
		log_error("'%s' is one argument too many (foliofs -h tells the usage)", arg);
		return -EINVAL;
	}
	return 0;
}

/* The single letters; false when @letter is none of them. */
static bool parse_letter(struct options *options, char letter)
{
	switch (letter) {
	case 'f':
		options->foreground = true;
		return true;
	case 'd':
		options->debug = true;
		return true;
	case 'h':
		options->help = true;
		return true;
	case 'V':
		options->version = true;
		return true;
	case 'r':
		options->ro = true;
		return true;
	case 's':	/* one thread: the number of threads is our own business */
		return true;
	}
	return false;
}

static int parse_dash(struct options *options, const char *arg)
{
	if (!strcmp(arg, "--help") || !strcmp(arg, "--version"))
		return parse_letter(options, arg[2] == 'h' ? 'h' : 'V') ? 0 : -EINVAL;
	for (const char *letter = arg + 1; *letter; letter++) {
		if (!parse_letter(options, *letter)) {
			log_error("unknown option '%s' (foliofs -h lists them)", arg);
			return -EINVAL;
		}
	}
	return 0;
}

static uint64_t default_cache_size(void)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t size = pages > 0 && page > 0 ? (uint64_t)pages * page / 8 : 0;

	if (size < CACHE_DEFAULT_LEAST)
		return CACHE_DEFAULT_LEAST;
	return size > CACHE_DEFAULT_MOST ? CACHE_DEFAULT_MOST : size;
}

static int check(struct options *options)
{
	if (options->help || options->version)
		return 0;
	if (!options->image || !options->mountpoint) {
		log_error("%s is missing (usage: foliofs [-o options] IMAGE MOUNTPOINT)",
			  options->image ? "the mount point" : "the image");
		return -EINVAL;
	}
	if (options->cache_size < CACHE_SIZE_LEAST) {
		log_error("option cache_size needs at least 4M");
		return -EINVAL;
	}
	if (!options->commit)
		options->commit = COMMIT_DEFAULT;
	if (options->debug)
		options->foreground = true;
	return 0;
}

/**
 * options_parse() - defaults, then what the command line says
 * @options: filled; to be finished with options_finish() in any case
 * @argc: number of @argv
 * @argv: the command line, with the program's name first; strings are referred to, not copied
 *
 * Context: any.
 * Return: 0; -EINVAL or -ENOMEM after one clear line was logged.
 */
int options_parse(struct options *options, int argc, char **argv)
{
	bool only_names = false;
	int ret = 0;

	*options = (struct options){
		.cache_size = default_cache_size(),
		.readahead = READAHEAD_DEFAULT,
		.commit = COMMIT_DEFAULT,
		.spin = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? SPIN_DEFAULT : 0,
		.acl = true,
	};
	for (int i = 1; i < argc && !ret; i++) {
		const char *arg = argv[i];

		if (only_names || arg[0] != '-' || !arg[1])
			ret = positional(options, arg);
		else if (!strcmp(arg, "--"))
			only_names = true;
		else if (arg[1] == 'o' && arg[2])
			ret = parse_list(options, arg + 2);
		else if (arg[1] == 'o' && i + 1 < argc)
			ret = parse_list(options, argv[++i]);
		else
			ret = parse_dash(options, arg);
	}
	if (ret == -ENOMEM)
		log_error("out of memory");
	return ret ?: check(options);
}

void options_finish(struct options *options)
{
	free(options->fuse_opts);
	free(options->lockfile);
	options->fuse_opts = NULL;
	options->lockfile = NULL;
}

void options_print_help(void)
{
	char name[64];

	printf("usage: foliofs [-o options] IMAGE MOUNTPOINT\n"
	       "       foliofs umount MOUNTPOINT\n"
	       "       foliofs stats [--json] MOUNTPOINT\n\n"
	       "    -f                        stay in the foreground\n"
	       "    -d                        the same, and print every request\n"
	       "    -V                        print the version\n"
	       "    -h                        print this help\n\n"
	       "options (-o NAME,NAME=VALUE,...):\n");
	for (size_t i = 0; i < NR_ROWS; i++) {
		if (!rows[i].help)
			continue;
		snprintf(name, sizeof(name), "%s%s%s", rows[i].name, rows[i].value ? "=" : "",
			 rows[i].value ?: "");
		printf("    %-25s %s\n", name, rows[i].help);
	}
	printf("\nOf mount(8): suid, nosuid, dev, nodev, exec, noexec, sync, dirsync, atime,\n"
	       "noatime.\n");
}
