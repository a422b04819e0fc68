/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * File data from folios to the image.
 *
 * The cache hands over batches of folios, runs with gaps between them. Blocks that have a written
 * place go there. For others, blocks are chosen, or the unwritten ones that the file has are used; the
 * data is written; and only then does the map say so. So metadata never points to what somebody else
 * left in a block, whenever a crash comes: a commit need not care for data in flight, and who waits for
 * a commit here makes nobody wait. The file's size on the image grows with its map.
 *
 * The folios are unlocked when all blocks have their places, before the transfers. While they are
 * under writeback nobody takes them out of the cache, or changes the map below them, with three
 * exceptions: fallocate() may give blocks to a hole, then the chosen ones are given up and the data
 * is written once more; it makes ranges unwritten that are to be zeroed, which come back here or
 * are dropped; and on a full image an unwritten extent is zeroed as a whole (map_alloc.c), then
 * data that is on its way there is written once more, too.
 *
 * A write that failed leaves the blocks with the file, unwritten, since what was reserved for them is
 * given back with the folio lock held, before it is known.
 *
 * Locks: folio locks held on entry; volume lock inside, which guards inode->writes, too.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"
#include "transfers.h"
#include "txn.h"

/* A cursor over the pieces of a batch: neighbouring blocks that are being written. */
struct run {
	struct folio **folios;
	unsigned int nr;		/* folios */
	unsigned int i, block;		/* behind the present piece: folio, and block in it */
	uint32_t lblk, len;		/* the present piece, in blocks of the file */
};

/*
 * The next piece, over as many folios as it goes, without a gap between them; false at the end. Begin
 * with zeros.
 */
static bool run_next(struct run *run)
{
	unsigned int len;

	run->len = 0;
	for (; run->i < run->nr; run->i++, run->block = 0) {
		struct folio *folio = run->folios[run->i];
		unsigned int from = run->block;

		len = folio_find_run(folio, BLOCKS_WRITING, true, &run->block);
		if (run->len && (!len || run->block != from ||
				 folio_lblk(folio) + from != run->lblk + run->len)) {
			run->block = from;
			break;
		}
		if (!len)
			continue;
		if (!run->len)
			run->lblk = folio_lblk(folio) + run->block;
		run->len += len;
		run->block += len;
		if (run->block < folio_nr_blocks(folio))
			break;
	}
	return run->len;
}

/*
 * Places
 */

static int make_room(struct file_write *w)
{
	unsigned int room = w->room ? 2 * w->room : 8;
	struct map_extent *places;
	bool *chosen;

	if (w->nr < w->room)
		return 0;
	places = realloc(w->places, room * sizeof(*places));
	if (places)
		w->places = places;
	chosen = places ? realloc(w->chosen, room * sizeof(*chosen)) : NULL;
	if (!chosen)
		return -ENOMEM;
	w->chosen = chosen;
	w->room = room;
	return 0;
}

/* Volume lock. */
static int add_place(struct file_write *w, const struct map_extent *place, bool chosen)
{
	int err = make_room(w);

	if (err)
		return err;
	w->places[w->nr] = *place;
	w->chosen[w->nr++] = chosen;
	return 0;
}

/* Where a hole would best go on behind the place before it. */
static uint64_t goal_behind(const struct file_write *w, uint32_t lblk)
{
	const struct map_extent *last = w->nr ? &w->places[w->nr - 1] : NULL;

	return last && map_end(last) == lblk ? last->pblk + last->len : 0;
}

/* A place for (part of) @found, which has none on the image yet, or an unwritten one. */
static int place_new(struct file_write *w, struct map_extent *found)
{
	struct ext4_volume *vol = ext4_vol(w->inode);
	bool hole = !found->pblk;
	int err = ext4_begin(vol);

	if (err)
		return err;
	if (hole) {
		found->pblk = goal_behind(w, found->lblk);
		err = map_choose(w->inode, found);
	}
	if (!err) {
		err = add_place(w, found, hole);
		if (err && hole)
			blocks_give_up(vol, found->pblk, found->len);
	}
	ext4_end(vol);
	return err;
}

/* A piece's places: [lblk, lblk + len). */
static int place_piece(struct file_write *w, uint32_t lblk, uint32_t len)
{
	struct map_extent found;
	uint64_t end = (uint64_t)lblk + len;
	int err = 0;

	for (; lblk < end && !err; lblk += found.len) {
		err = map_find(w->inode, lblk, &found);
		if (err)
			break;
		if (found.len > end - lblk)
			found.len = end - lblk;
		if (found.pblk && !found.unwritten) {
			ext4_lock(ext4_vol(w->inode));
			err = add_place(w, &found, false);
			ext4_unlock(ext4_vol(w->inode));
		} else {
			err = place_new(w, &found);
		}
	}
	return err;
}

static int place_run(struct file_write *w, struct run run)
{
	int err = 0;

	while (!err && run_next(&run))
		err = place_piece(w, run.lblk, run.len);
	return err;
}

/* Plans the transfers of a run of blocks of one folio; *@i is the place to begin with. */
static int plan_blocks(const struct file_write *w, unsigned int *i, struct folio *folio,
		       unsigned int block, unsigned int nr, struct transfers *t)
{
	uint32_t lblk = folio_lblk(folio) + block;
	unsigned int shift = folio->block_shift, n;
	int err = 0;

	for (; nr && !err; block += n, lblk += n, nr -= n) {
		const struct map_extent *place;

		while (map_end(&w->places[*i]) <= lblk)
			++*i;
		place = &w->places[*i];
		n = map_end(place) - lblk < nr ? map_end(place) - lblk : nr;
		err = transfers_add(t, (place->pblk + (lblk - place->lblk)) << shift,
				    folio_block_address(folio, block), (size_t)n << shift);
	}
	return err;
}

static int plan_writes(const struct file_write *w, const struct run *run, struct transfers *t)
{
	unsigned int at = 0;
	int err = 0;

	transfers_reset(t);
	for (unsigned int i = 0; i < run->nr; i++) {
		struct folio *folio = run->folios[i];
		unsigned int block = 0, nr;

		while (!err && (nr = folio_find_run(folio, BLOCKS_WRITING, true, &block))) {
			err = plan_blocks(w, &at, folio, block, nr, t);
			block += nr;
		}
	}
	return err;
}

/*
 * The map
 */

/* Chosen blocks from place @i on are free again. Volume lock. */
static void give_up(struct file_write *w, unsigned int i)
{
	for (; i < w->nr; i++) {
		if (w->chosen[i])
			blocks_give_up(ext4_vol(w->inode), w->places[i].pblk, w->places[i].len);
	}
	w->nr = 0;
	w->written = w->again = false;
}

/* The size on the image covers what is in the map. Volume lock. */
static void raise_size(struct ext4_inode *inode, uint64_t lblk)
{
	uint64_t size = lblk << inode->vn.mapping.block_shift;
	uint64_t most = mapping_size(&inode->vn.mapping);

	if (size > most)
		size = most;
	if (size > EXT2_I_SIZE(&inode->raw))
		file_set_raw_size(inode, size);
}

/* Puts place @i into the map; on an error what is left of it stays. Volume lock. */
static int attach(struct file_write *w, unsigned int i, bool failed)
{
	struct map_extent *place = &w->places[i];
	int err;

	place->unwritten = !w->chosen[i];
	err = map_attach(w->inode, place, failed);
	if (!failed)
		raise_size(w->inode, place->lblk);
	return err;
}

/* The first place from @i on that the map does not have so yet. */
static unsigned int next_new(const struct file_write *w, unsigned int i)
{
	while (i < w->nr && !w->chosen[i] && !w->places[i].unwritten)
		i++;
	return i;
}

/* One operation: as many places from *@i on as it has room for. */
static int attach_some(struct file_write *w, unsigned int *i, bool failed)
{
	struct ext4_volume *vol = ext4_vol(w->inode);
	int err = ext4_begin(vol), werr;

	if (err)
		return err;
	if (!failed && w->again) {
		ext4_end(vol);
		return -EAGAIN;
	}
	w->written = !failed;
	do {
		err = attach(w, *i, failed);
		if (err)
			break;
		*i = next_new(w, *i + 1);
	} while (*i < w->nr && !txn_is_full(vol));
	werr = ext4_inode_write(w->inode);
	ext4_end(vol);
	return err ? err : werr;
}

/* The data is on the image, or @failed to get there. */
static int attach_all(struct file_write *w, bool failed)
{
	unsigned int i = next_new(w, 0);
	int err = 0;

	while (i < w->nr && !err)
		err = attach_some(w, &i, failed);
	if (i == w->nr)
		return err;
	ext4_lock(ext4_vol(w->inode));
	give_up(w, i);
	ext4_unlock(ext4_vol(w->inode));
	return err;
}

/*
 * The call
 */

static void begin_write(struct file_write *w)
{
	ext4_lock(ext4_vol(w->inode));
	w->next = w->inode->writes;
	w->inode->writes = w;
	ext4_unlock(ext4_vol(w->inode));
}

static void end_write(struct file_write *w)
{
	struct file_write **at = &w->inode->writes;

	ext4_lock(ext4_vol(w->inode));
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	ext4_unlock(ext4_vol(w->inode));
	free(w->places);
	free(w->chosen);
}

/* Blocks being written need no reservation any more once they have their places. */
static uint32_t clear_reserved(struct folio **folios, unsigned int nr)
{
	uint32_t blocks = 0;

	for (unsigned int i = 0; i < nr; i++) {
		for (unsigned int b = 0; b < folio_nr_blocks(folios[i]); b++) {
			if (!folio_block(folios[i], BLOCKS_RESERVED, b) ||
			    !folio_block(folios[i], BLOCKS_WRITING, b))
				continue;
			folio_set_reserved(folios[i], b, false);
			blocks++;
		}
	}
	return blocks;
}

static int place_and_plan(struct file_write *w, const struct run *run, struct transfers *t)
{
	int err = place_run(w, *run);

	if (!err)
		err = plan_writes(w, run, t);
	if (err && w->nr) {
		ext4_lock(ext4_vol(w->inode));
		give_up(w, 0);
		ext4_unlock(ext4_vol(w->inode));
	}
	return err;
}

/* Writes what is planned, and tells the map. -EAGAIN: it has to be planned and written anew. */
static int write_and_attach(struct file_write *w, struct transfers *t)
{
	int err = transfers_submit(t), ret = attach_all(w, err);

	return err ? err : ret;
}

/**
 * file_write_folios - ->write_folios of a file
 * @mapping: the file's
 * @folios: in rising order, locked and under writeback
 * @nr: how many
 *
 * Context: unlocks the folios. May wait for a commit.
 * Return: 0 or an error.
 */
int file_write_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct file_write w = { .inode = mapping->owner };
	struct run run = { .folios = folios, .nr = nr };
	uint32_t delayed = 0;
	struct transfers t;
	int err;

	transfers_init(&t, ext4_vol(w.inode)->vol.image, true);
	begin_write(&w);
	err = place_and_plan(&w, &run, &t);
	if (!err)
		delayed = clear_reserved(folios, nr);
	for (unsigned int i = 0; i < nr; i++)
		folio_unlock(folios[i]);
	if (!err)
		err = write_and_attach(&w, &t);
	while (err == -EAGAIN) {
		w.nr = 0;
		err = place_and_plan(&w, &run, &t);
		if (!err)
			err = write_and_attach(&w, &t);
	}
	delalloc_release(w.inode, delayed);
	end_write(&w);
	transfers_finish(&t);
	ext4_data_written(w.inode, err);
	return err;
}
