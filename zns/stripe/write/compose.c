/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Composed images, which consist of runs of others: see zns_writer_compose. */
#include "writer.h"

NEEDS_LOCK static int check_from(const struct zns_writer *w, struct zns_wimage *const *from,
				 uint32_t nr, const char *name, struct zns_err *err)
{
	if (!nr || nr > ZNS_MAP_FROM_MAX)
		return zns_fail(err, -EINVAL, "image %s: composed of %u images, not 1 to 4096",
				name, nr);
	for (uint32_t n = 0; n < nr; n++)
		if (from[n]->w != w || !from[n]->sealed || !from[n]->pb.part || from[n]->pb.map)
			return zns_fail(err, -EINVAL, "image %s: %s is not a complete part of it",
					name, from[n]->pb.name);
	return 0;
}

NEEDS_LOCK static int check_runs(struct zns_wimage *const *from, uint32_t nr_from,
				 const struct zns_image_run *run, size_t nr, const char *name,
				 uint64_t *size, struct zns_err *err)
{
	*size = 0;
	for (size_t n = 0; n < nr; n++) {
		if (run[n].source >= nr_from ||
		    !zns_map_run_fits(&run[n], from[run[n].source]->pb.size) ||
		    run[n].len > UINT64_MAX - *size)
			return zns_fail(
				err, -EINVAL,
				"image %s: run %zu (%llu+%llu of part %u) is outside the part",
				name, n, (unsigned long long)run[n].at,
				(unsigned long long)run[n].len, run[n].source);
		*size += run[n].len;
	}
	return 0;
}

static int make_map(ZnsPb__ImageMap *map, struct zns_wimage *const *from, uint32_t nr_from,
		    const struct zns_image_run *run, size_t nr, uint32_t *runs, struct zns_err *err)
{
	int ret = zns_map_pack(run, nr, nr_from, &map->runs.data, &map->runs.len, runs, err);

	if (ret)
		return ret;
	map->from = malloc(nr_from * sizeof(*map->from));
	if (!map->from)
		return zns_fail(err, -ENOMEM, "no memory for a map");
	for (uint32_t n = 0; n < nr_from; n++)
		map->from[map->n_from++] = from[n]->index;
	return 0;
}

/* Counts the runs of all images against the limit that exists because a reader keeps all runs in
 * memory. */
static int take_runs(struct zns_writer *w, uint32_t runs, const char *name, struct zns_err *err)
{
	bool fits;

	writer_lock(w);
	fits = runs <= ZNS_MAP_RUNS_MAX - w->images.nr_runs;
	w->images.nr_runs += fits ? runs : 0;
	writer_unlock(w);
	return fits ? 0 :
		      zns_fail(err, -E2BIG, "image %s: more than %u runs in the checkpoint", name,
			       ZNS_MAP_RUNS_MAX);
}

int zns_writer_compose(struct zns_writer *w, const char *name, struct zns_wimage *const *from,
		       uint32_t nr_from, const struct zns_image_run *run, size_t nr,
		       struct zns_err *err)
{
	ZnsPb__ImageMap map = ZNS_PB__IMAGE_MAP__INIT;
	struct zns_wimage *i;
	uint32_t runs = 0;
	uint64_t size = 0;
	int ret;

	writer_lock(w);
	ret = nr ? check_from(w, from, nr_from, name, err) : 0;
	if (!ret)
		ret = check_runs(from, nr_from, run, nr, name, &size, err);
	writer_unlock(w);
	if (!ret && nr)
		ret = make_map(&map, from, nr_from, run, nr, &runs, err);
	if (!ret)
		ret = take_runs(w, runs, name, err);
	if (!ret)
		ret = zns_writer_image(w, name, true, &i, err);
	if (ret) {
		free(map.from);
		free(map.runs.data);
		return ret;
	}
	writer_lock(w);
	i->map = map;
	i->pb.map = nr ? &i->map : NULL; /* without runs it is an empty image */
	i->pb.size = size;
	i->pb.has_piece = i->pb.piece = 0;
	i->pb.has_unit_base = 0;
	i->pb.unit_base = 0;
	i->sealed = true;
	writer_unlock(w);
	return 0;
}
