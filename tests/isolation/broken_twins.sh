#!/usr/bin/env bash
# broken_twins.sh DSN: a spec proves something only if it can fail. Each broken/NAME.spec or
# broken/NAME__REASON.spec is specs/NAME.spec with the guarding clause taken out; it must run,
# and its output must say LOST or differ from what the sound spec is expected to print.
# shellcheck source-path=SCRIPTDIR/../../scripts
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
require_dev
dsn=${1:?which cluster?}
here=$ROOT/tests/isolation
tester=$(prefix_lib pg-e2e)/pgxs/src/test/isolation/isolationtester
psql=$(prefix_bin pg-e2e)/psql
results=$DEV/results/broken
rm -rf "$results" && mkdir -p "$results"
verdict=0

# Without the headings of each interleaving: two specs may spell those differently.
observations() { grep -v -e '^starting permutation:' -e '^Parsed test spec' "$1"; }

for spec in "$here"/broken/*.spec; do
    [ -e "$spec" ] || continue
    name=$(basename "$spec" .spec)
    sound=$here/expected/${name%%__*}.out
    output=$results/$name.out
    [ -e "$here/specs/${name%%__*}.spec" ] || { echo "there is no sound spec for $name"; }
    "$psql" -X -q "$dsn" -c "DROP DATABASE IF EXISTS broken WITH (FORCE)" -c "CREATE DATABASE broken" 2>/dev/null
    "$psql" -X -q "${dsn/dbname=postgres/dbname=broken}" -c "CREATE EXTENSION $EXTENSION"
    "$tester" "${dsn/dbname=postgres/dbname=broken}" <"$spec" >"$output" 2>&1 || true
    if ! grep -q '^Parsed test spec' "$output" || grep -q '^setup failed' "$output"; then
        echo "test broken/$name ... FAILED (it did not run)"
        tail -n 20 "$output"
        verdict=1
    elif grep -q LOST "$output" || ! diff -q <(observations "$sound") <(observations "$output") >/dev/null; then
        echo "test broken/$name ... ok (the fault shows)"
    else
        echo "test broken/$name ... FAILED (the fault goes unnoticed, so the sound spec proves nothing)"
        verdict=1
    fi
done
exit $verdict
