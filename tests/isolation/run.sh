#!/usr/bin/env bash
# run.sh DSN [NAME...]: every isolation spec and every broken twin, or the named specs with their twins, on a live server.
# A spec passes if the digest of its output is the one in expected/; see digest.py. A spec proves something only if it can
# fail: each broken/NAME.spec or broken/NAME__REASON.spec is specs/NAME.spec with the guarding clause taken out, and passes if
# it runs and its digest differs from the one that NAME is expected to have.
# Prints "test NAME ... ok" or "FAILED" for each. The outputs in full, and their digests: .dev/results/isolation.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
require_dev
dsn=${1:?which cluster?}
shift
here=$ROOT/tests/isolation
tester=$(prefix_lib pg-e2e)/pgxs/src/test/isolation/isolationtester
psql=$(prefix_bin pg-e2e)/psql
results=$DEV/results/isolation
rm -rf "$results" && mkdir -p "$results/broken"
export PGTZ=UTC PGDATESTYLE=ISO PGAPPNAME=isolation
verdict=0

fresh_database() { # NAME
    # A twin may leave a guard out by a failpoint.
    "$psql" -X -q "$dsn" -c "ALTER SYSTEM RESET $EXTENSION.failpoint" -c "SELECT FROM pg_reload_conf()" >/dev/null
    "$psql" -X -q "$dsn" -c "DROP DATABASE IF EXISTS $1 WITH (FORCE)" -c "CREATE DATABASE $1" 2>/dev/null
    "$psql" -X -q "${dsn/dbname=postgres/dbname=$1}" -c "CREATE EXTENSION $EXTENSION"
}

# Writes RESULT.out and RESULT.digest. Fails if the spec did not run to its end.
run_spec() { # DATABASE SPEC RESULT
    "$tester" "${dsn/dbname=postgres/dbname=$1}" <"$2" >"$3.out" 2>&1 &&
        ! grep -q '^setup failed' "$3.out" && python3 "$here/digest.py" "$2" "$3.out" >"$3.digest"
}

passed() { echo "test $1 ... ok${2:+ ($2)}"; }
failed() { # NAME REASON
    echo "test $1 ... FAILED ($2)"
    verdict=1
}

check_spec() { # NAME
    local result=$results/$1 expected=$here/expected/$1.digest
    if ! run_spec isolation "$here/specs/$1.spec" "$result"; then
        failed "$1" "it did not run to its end"
        tail -n 20 "$result.out"
    elif diff -u --label "expected/$1.digest" --label "$result.digest" "$expected" "$result.digest" >"$result.diff" 2>&1; then
        passed "$1"
    else
        failed "$1" "the orders in full are in $result.out"
        sed 's/^/    /' "$result.diff"
    fi
}

check_twin() { # NAME
    local result=$results/broken/$1 sound=$here/expected/${1%%__*}.digest
    fresh_database broken
    if ! run_spec broken "$here/broken/$1.spec" "$result"; then
        failed "broken/$1" "it did not run to its end"
        tail -n 20 "$result.out"
    elif [ ! -s "$sound" ]; then
        failed "broken/$1" "there is no $sound to compare it with"
    elif diff -q "$sound" "$result.digest" >/dev/null; then
        failed "broken/$1" "the fault goes unnoticed, so the sound spec proves nothing"
    else
        passed "broken/$1" "the fault shows"
    fi
}

if [ $# -eq 0 ]; then
    for spec in "$here"/specs/*.spec; do set -- "$@" "$(basename "$spec" .spec)"; done
fi
fresh_database isolation
for name in "$@"; do check_spec "$name"; done
for name in "$@"; do
    for spec in "$here/broken/$name.spec" "$here/broken/${name}__"*.spec; do
        if [ -e "$spec" ]; then check_twin "$(basename "$spec" .spec)"; fi
    done
done
exit $verdict
