#!/usr/bin/env bash
# make bench: builds the release, measures it on a private server with fsync on, prints one table and writes it to
# bench/RESULTS.md. Everything in the table comes from one run, so its ratios can be trusted even where its absolute
# numbers depend on the machine. Takes about ten minutes.
#
#   BENCH_QUICK=1 make bench                    a short run, printed but not written to RESULTS.md
#   BENCH_SECTIONS="drain latency" make bench   only some of it, likewise
# shellcheck source-path=SCRIPTDIR/../scripts
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
here=$ROOT/bench
"$ROOT/scripts/setup.sh"
require_dev

say "building the extension (release)"
"$ROOT/scripts/build.sh" pg

# How much of the processors nobody uses, in percent: what else runs here disturbs every number.
idle_percent() {
    local before after
    before=$(awk '/^cpu / { print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 }' /proc/stat)
    sleep 3
    after=$(awk '/^cpu / { print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 }' /proc/stat)
    awk "BEGIN { split(\"$before $after\", v, \" \"); printf \"%.0f\", 100 * (v[3] - v[1]) / (v[4] - v[2]) }"
}
idle=$(idle_percent)
[ "$idle" -ge 90 ] || warn "other programs use $((100 - idle)) % of the processors: trust the processor times, not the clock"

# Names the measured source by the title of its commit: a hash does not survive a rebase.
measured_state() {
    local title changes
    title=$(git -C "$ROOT" log -1 --format=%s)
    changes=$(git -C "$ROOT" status --porcelain -- src crates sql Cargo.toml Cargo.lock)
    echo "the commit \"$title\"${changes:+ with changes that were not committed}"
}

cluster() { "$ROOT/scripts/cluster.sh" "$1" bench "${@:2}"; }
results=$DEV/bench-results
cluster destroy
trap 'cluster destroy' EXIT
cluster start pg "shared_preload_libraries=$EXTENSION" max_worker_processes=32 fsync=on shared_buffers=1GB \
    max_wal_size=8GB checkpoint_timeout=30min track_commit_timestamp=on
PATH=$(prefix_bin pg):$PATH
PGHOST=$(cluster dsn | sed 's/.*host=\([^ ]*\).*/\1/')
PGPORT=$(cluster dsn | sed 's/.*port=\([^ ]*\).*/\1/')
export PATH PGHOST PGPORT PGUSER=postgres
: >"$results"
# shellcheck disable=SC2086 # a list of sections
"$here/measure.sh" "$results" ${BENCH_SECTIONS:-}
server=$(psql -X -A -t -d postgres -c 'SHOW server_version')

echo
"$here/report.sh" "$results" | tee "$DEV/bench-table"
if [ "${BENCH_QUICK:-0}" != 1 ] && [ -z "${BENCH_SECTIONS:-}" ]; then
    {
        cat <<TEXT
# Results of \`make bench\`

One run, $(date -u +%Y-%m-%d), of $(measured_state). Medians of three rounds unless said.
How each number is measured: \`measure.sh\`; the plain SQL loop is \`floor_work\` in \`schema.sql\`.

- processor: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores
- memory: $(awk '/^MemTotal/ { printf "%.0f GB", $2 / 1048576 }' /proc/meminfo)
- kernel: $(uname -sr)
- PostgreSQL $server: fsync on, synchronous_commit on, shared_buffers 1 GB, max_wal_size 8 GB, checkpoint_timeout 30 min
- processors idle before the run: $idle %

TEXT
        cat "$DEV/bench-table"
    } >"$here/RESULTS.md"
    say "written to bench/RESULTS.md"
fi
