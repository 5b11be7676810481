#!/usr/bin/env bash
# broken_twins.sh DSN: a spec proves something only if it can fail. Each broken/NAME.spec or
# broken/NAME__REASON.spec is specs/NAME.spec with the guarding clause taken out; it must run,
# and its sessions must see something else than those of the sound spec.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
require_dev
dsn=${1:?which cluster?}
here=$ROOT/tests/isolation
tester=$(prefix_lib pg-e2e)/pgxs/src/test/isolation/isolationtester
psql=$(prefix_bin pg-e2e)/psql
results=$DEV/results/broken
rm -rf "$results" && mkdir -p "$results"
verdict=0

# What the sessions saw: without the headings and without the echoed SQL, which differs between
# twins by design. Of a step only its name stays, and whether it had to wait.
observations() { # SPEC OUTPUT
    awk '
        function plain(line) { gsub(/^[ \t]+|[ \t]*}?[ \t]*$/, "", line); return line }
        NR == FNR { sub(/^[ \t]*step[ \t]+[^{]*{/, ""); echoed[plain($0)]; next }
        /^starting permutation:|^Parsed test spec/ { next }
        /^step / {
            marker = match($0, /<waiting \.\.\.>|<\.\.\. completed>/) ? " " substr($0, RSTART, RLENGTH) : ""
            print $1, $2 marker
            next
        }
        plain($0) in echoed { next }
        { print }' "$1" "$2"
}

for spec in "$here"/broken/*.spec; do
    [ -e "$spec" ] || continue
    name=$(basename "$spec" .spec)
    sound=$here/expected/${name%%__*}.out
    output=$results/$name.out
    if [ ! -e "$sound" ]; then
        echo "test broken/$name ... FAILED (there is no $sound to compare it with)"
        verdict=1
        continue
    fi
    # A twin may leave a guard out by a failpoint.
    "$psql" -X -q "$dsn" -c "ALTER SYSTEM RESET automation_engine.failpoint" -c "SELECT FROM pg_reload_conf()" >/dev/null
    "$psql" -X -q "$dsn" -c "DROP DATABASE IF EXISTS broken WITH (FORCE)" -c "CREATE DATABASE broken" 2>/dev/null
    "$psql" -X -q "${dsn/dbname=postgres/dbname=broken}" -c "CREATE EXTENSION $EXTENSION"
    "$tester" "${dsn/dbname=postgres/dbname=broken}" <"$spec" >"$output" 2>&1 || true
    if ! grep -q '^Parsed test spec' "$output" || grep -q '^setup failed' "$output"; then
        echo "test broken/$name ... FAILED (it did not run)"
        tail -n 20 "$output"
        verdict=1
    elif ! diff -q <(observations "$here/specs/${name%%__*}.spec" "$sound") <(observations "$spec" "$output") >/dev/null; then
        echo "test broken/$name ... ok (the fault shows)"
    else
        echo "test broken/$name ... FAILED (the fault goes unnoticed, so the sound spec proves nothing)"
        verdict=1
    fi
done
exit $verdict
