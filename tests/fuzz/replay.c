/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs a fuzz target, without a fuzzer, on each file of a directory: replay DIRECTORY
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t input[1 << 16];

/* Runs one file. Its name is said first, for the case that it ends in a crash. */
static void replay(const char *name)
{
	FILE *file = fopen(name, "r");
	uint8_t *exact;
	size_t size;

	if (!file) {
		perror(name);
		exit(1);
	}
	size = fread(input, 1, sizeof(input), file);
	fclose(file);
	/* Memory of the exact size, so that a sanitizer sees a target that reads too far. */
	exact = malloc(size ? size : 1);
	if (!exact)
		exit(1);
	for (size_t i = 0; i < size; i++)
		exact[i] = input[i];
	fprintf(stderr, "%s: %zu bytes\n", name, size);
	LLVMFuzzerTestOneInput(exact, size);
	free(exact);
}

int main(int argc, char **argv)
{
	unsigned int n = 0;
	struct dirent *entry;
	DIR *dir;

	if (argc != 2 || chdir(argv[1]) || !(dir = opendir("."))) {
		fprintf(stderr, "usage: replay DIRECTORY\n");
		return 2;
	}
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		replay(entry->d_name);
		n++;
	}
	closedir(dir);
	printf("%u inputs\n", n);
	return n == 0;
}
