/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FOLIOFS_CRC32C_H
#define FOLIOFS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ext4_crc32c(uint32_t crc, const void *buf, size_t len);

#endif
