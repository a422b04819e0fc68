/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * crc32c for what is sealed again with each change: inodes, blocks of directories, the journal.
 *
 * x86-64 has had an instruction for it since SSE 4.2. libext2fs goes by tables, which takes about
 * four times as long: a tenth of all that rm -r costs. Where the instruction is missing, its
 * function serves.
 */
#include <string.h>
#include <ext2fs/ext2_fs.h>
#include <ext2fs/ext2fs.h>
#include "crc32c.h"

#ifdef __x86_64__
__attribute__((target("sse4.2")))
static uint32_t crc_sse(uint32_t crc, const unsigned char *from, size_t len)
{
	uint64_t wide = crc;

	for (; len >= sizeof(uint64_t); from += sizeof(uint64_t), len -= sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, from, sizeof(word));
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = (uint32_t)wide;
	for (; len; from++, len--)
		crc = __builtin_ia32_crc32qi(crc, *from);
	return crc;
}
#endif

/**
 * ext4_crc32c - checksum of more bytes
 * @crc: of those before; ~0 or a seed at the start
 * @buf: the bytes
 * @len: how many
 *
 * Context: any.
 * Return: what ext2fs_crc32c_le() returns.
 */
uint32_t ext4_crc32c(uint32_t crc, const void *buf, size_t len)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2"))
		return crc_sse(crc, buf, len);
#endif
	return ext2fs_crc32c_le(crc, buf, len);
}
