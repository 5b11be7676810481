#!/usr/bin/env bash
# Every test layer, in order, one line each; see CONTRIBUTING.md for what each asks.
#
#   tests/run.sh                  all of them
#   tests/run.sh core isolation   only these
#   tests/run.sh --plan           say what each would run, and run nothing; crates/core/tests/layers.rs reads it
#   AE_SETTINGS="automation_engine.fast_append=off" tests/run.sh pg_regress e2e
#                                 the same on servers with these settings, separated by blanks
#
# Full output: .dev/test-logs/<layer>.log. Ends with "N passed, N failed".
# shellcheck source-path=SCRIPTDIR/../scripts
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
ALL_LAYERS="lint core pgrx pg_regress differential isolation attacks e2e readme"
plan=no
if [ "${1:-}" = --plan ]; then
    plan=yes
    shift
fi
layers=${*:-$ALL_LAYERS}
cd "$ROOT"
if [ $plan = yes ]; then DEV=$ROOT/.dev; else scripts/setup.sh tests && require_dev; fi
export PGRX_HOME=$DEV/pgrx CARGO_TERM_COLOR=never NO_COLOR=1
logs=$DEV/test-logs
[ $plan = yes ] || mkdir -p "$logs"

# ---- what the layers share ------------------------------------------------------------

# The extension with failpoints, in release mode: one build for all layers with live servers.
build_for_servers() { scripts/build.sh pg-e2e failpoints; }

# A new cluster named after its layer, with the layer's own settings.
start_cluster() { # NAME PREFIX [SETTING=VALUE | FILE.conf]...
    scripts/cluster.sh destroy "$1"
    # shellcheck disable=SC2086 # a list of settings
    scripts/cluster.sh start "$@" "shared_preload_libraries=$EXTENSION" fsync=off ${AE_SETTINGS:-}
}

verdict_on() { # NAME COMMAND...
    local name=$1
    shift
    if "$@"; then echo "test $name ... ok"; else echo "test $name ... FAILED" && return 1; fi
}

# ---- the layers: each prints its output and fails if a test failed -----------------------

layer_lint() {
    local verdict=0
    verdict_on rustfmt cargo fmt --all --check || verdict=1
    verdict_on clippy cargo clippy --workspace --all-targets --features "pg$PG_MAJOR failpoints" -- -D warnings || verdict=1
    verdict_on shellcheck shellcheck --external-sources .ci/run bench/*.sh scripts/*.sh tests/*.sh tests/*/*.sh || verdict=1
    verdict_on cargo-deny cargo_deny --locked --workspace check -D warnings licenses bans sources || verdict=1
    # The install script is made by the build that the layers with servers need anyway.
    build_for_servers
    verdict_on pgspot tests/pgspot.sh "$(prefix_extensions pg-e2e)" || verdict=1
    return $verdict
}

# Every crate that needs no server: all workspace members but the extension and the end-to-end tests, so that a new
# crate's tests run without being named here.
layer_core() {
    local manifest packages=()
    for manifest in crates/*/Cargo.toml; do
        packages+=(-p "$(sed -n 's/^name *= *"\(.*\)"/\1/p' "$manifest" | head -n 1)")
    done
    # The crate of wrappers around Postgres needs to know which version it wraps.
    cargo test --no-fail-fast "${packages[@]}" --features "automation_pg/pg$PG_MAJOR"
}

layer_pgrx() {
    local data verdict=0 options=()
    data=$(mktemp -d /tmp/ae-pgrx.XXXXXX) # also the socket's directory, so short
    if is_root; then
        chown postgres: "$data"
        options=(--runas postgres)
    fi
    RUST_BACKTRACE=0 pgrx test "pg$PG_MAJOR" --pgdata "$data" "${options[@]}" || verdict=1
    rm -rf "$data"
    return $verdict
}

layer_pg_regress() {
    local dir=tests/pg_regress names=() options=() verdict=0
    build_for_servers
    start_cluster pg_regress pg-e2e $dir/server.conf
    # setup.sql, if there, creates the extension; it must come first.
    if [ -e $dir/sql/setup.sql ]; then names=(setup); else options=(--load-extension="$EXTENSION"); fi
    while read -r name; do names+=("$name"); done < <(test_names $dir/sql sql | grep -vx setup)
    regress "$(prefix_lib pg-e2e)/pgxs/src/test/regress/pg_regress" pg_regress $dir \
        --dlpath="$(prefix_lib pg-e2e)" "${options[@]}" "${names[@]}" || verdict=1
    scripts/cluster.sh stop pg_regress
    return $verdict
}

# The core's arithmetic, comparison, patterns and zones against a server's own.
layer_differential() {
    local dsn verdict=0
    build_for_servers
    start_cluster differential pg-e2e tests/pg_regress/server.conf
    dsn=$(scripts/cluster.sh dsn differential)
    dsn=${dsn#host=}
    # shellcheck disable=SC2001 # a substitution by pattern cannot cut out the middle
    PGHOST=${dsn%% *} DIFFERENTIAL_PSQL="-p $(sed 's/.* port=\([0-9]*\) .*/\1/' <<<"$dsn") -U postgres -d postgres" \
        cargo test -p automation_core --test differential || verdict=1
    scripts/cluster.sh stop differential
    return $verdict
}

# Every order of the steps of concurrent sessions, and the broken twin of each spec; see tests/isolation/run.sh.
layer_isolation() {
    local verdict=0
    build_for_servers
    start_cluster isolation pg-e2e tests/isolation/server.conf
    tests/isolation/run.sh "$(scripts/cluster.sh dsn isolation)" || verdict=1
    scripts/cluster.sh stop isolation
    return $verdict
}

# What a hostile role tries on a live server, one file each; see tests/attacks/run.sh.
layer_attacks() {
    local verdict=0
    build_for_servers
    start_cluster attacks pg-e2e tests/attacks/server.conf
    tests/attacks/run.sh "$(scripts/cluster.sh dsn attacks)" || verdict=1
    scripts/cluster.sh stop attacks
    return $verdict
}

layer_e2e() {
    build_for_servers
    # Two cores: more servers at once only make each other slow.
    with_e2e_servers cargo test -p e2e --no-fail-fast -- --test-threads="${AE_TEST_THREADS:-2}"
}

layer_chaos() {
    build_for_servers
    with_e2e_servers cargo test -p e2e --test chaos -- --nocapture
}

layer_readme() {
    local dsn verdict=0
    scripts/build.sh pg
    start_cluster readme pg "$EXTENSION.allow_superuser_automations=on" max_worker_processes=32
    dsn=$(scripts/cluster.sh dsn readme)
    scripts/cluster.sh psql readme postgres -X -q -c "CREATE DATABASE tour"
    scripts/readme.sh check "${dsn/dbname=postgres/dbname=tour}" || verdict=1
    scripts/cluster.sh stop readme
    return $verdict
}

# ---- runners --------------------------------------------------------------------------

test_names() { find "$1" -maxdepth 1 -name "*.$2" -printf '%f\n' | sed "s/\.$2$//" | LC_ALL=C sort; }

# pg_regress on a running cluster. Results stay for tests/accept.sh.
regress() { # PROGRAM CLUSTER DIRECTORY [ARGUMENT]...
    local program=$1 cluster=$2 dir=$DEV/results/$2/input out=$DEV/results/$2 dsn
    rm -rf "$out"
    mkdir -p "$out"
    # A copy, in which a new test has an empty expectation: without one the run would stop there.
    cp -r "$3" "$dir"
    cp -r examples docs "$dir/" # they are run, or compared with the catalog, by tests
    mkdir -p "$dir/expected"
    shift 3
    for name in "$@"; do [[ $name == -* ]] || touch "$dir/expected/$name.out"; done
    dsn=$(scripts/cluster.sh dsn "$cluster")
    PGHOST=$(sed -E 's/.*host=([^ ]*).*/\1/' <<<"$dsn") PGPORT=$(sed -E 's/.*port=([^ ]*).*/\1/' <<<"$dsn") \
        PGUSER=postgres "$program" --bindir="$(prefix_bin pg-e2e)" --inputdir="$dir" --outputdir="$out" \
        --dbname=regression "$@" || { cat "$out/regression.diffs" 2>/dev/null && return 1; }
}

# Runs a command with a place for the servers it starts, and stops those it left behind.
with_e2e_servers() {
    local verdict=0 dir
    dir=$(mktemp -d /tmp/ae-e2e.XXXXXX)
    chmod 755 "$dir"
    AE_PG_BIN=$(prefix_bin pg-e2e) AE_E2E_DIR=$dir AE_LOG_DIR=$logs "$@" || verdict=1
    local data pid
    for data in "$dir"/*/data; do
        pid=$(head -n 1 "$data/postmaster.pid" 2>/dev/null) || continue
        if [ "$(readlink "/proc/$pid/cwd")" = "$data" ]; then kill -QUIT "$pid" || true; fi
    done
    rm -rf "$dir" 2>/dev/null || { sleep 2 && rm -rf "$dir"; } # a server may still be going
    return $verdict
}

# Adds up cargo's "test result" lines and pg_regress's "test x ... ok" lines. Sets passed, failed.
count() {
    read -r passed failed < <(awk '
        /^test result: /            { passed += $4; failed += $6; next }
        /^test .+ \.\.\. +ok/       { if (!seen[$0]++) ok++ }
        /^test .+ \.\.\. +FAILED/   { if (!seen[$0]++) bad++ }
        END { if (passed + failed == 0) { passed = ok; failed = bad } print passed + 0, failed + 0 }' "$1")
}

# Replaces every program that the layers call by one that prints "LAYER: PROGRAM ARGUMENTS", and goes through the layers.
print_plan() {
    local program
    for program in cargo cargo_deny pgrx regress shellcheck chown rm scripts/build.sh scripts/cluster.sh scripts/readme.sh \
        tests/pgspot.sh tests/isolation/run.sh tests/attacks/run.sh; do
        eval "$program() { echo \"\$layer: $program \$*\" >&3; }"
    done
    # shellcheck disable=SC2317 # the layers call them
    mktemp() { echo "$DEV/none"; }
    # shellcheck disable=SC2317
    chmod() { :; }
    for layer in $layers; do "layer_$layer" 3>&1 >/dev/null; done
}

# ---- main -----------------------------------------------------------------------------

if [ $plan = yes ]; then
    print_plan
    exit
fi
total_passed=0
total_failed=0
for layer in $layers; do
    declare -F "layer_$layer" >/dev/null || die "there is no layer $layer" "Layers: $ALL_LAYERS chaos"
    log=$logs/$layer.log
    printf '%-12s' "$layer"
    began=$SECONDS
    # Not in a condition: there bash would go on after a failed command.
    set +e
    (set -e; "layer_$layer") >"$log" 2>&1
    verdict=$?
    set -e
    count "$log"
    # It may have failed before or beside its tests, or found none to run.
    if [ $verdict -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi
    if [ $((passed + failed)) -eq 0 ]; then
        failed=1
        echo "no test ran" >>"$log"
    fi
    printf '%6d passed, %4d failed  %5d s\n' "$passed" "$failed" $((SECONDS - began))
    if [ "$failed" -ne 0 ]; then
        printf -- '---- the end of %s\n' "$log"
        tail -n 40 "$log" | sed 's/^/    /'
    fi
    total_passed=$((total_passed + passed))
    total_failed=$((total_failed + failed))
done
echo "$total_passed passed, $total_failed failed"
[ "$total_failed" -eq 0 ]
