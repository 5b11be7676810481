#!/usr/bin/env bash
# readme.sh show|check DSN: runs the SQL blocks of README.md, in order, on an empty database.
#
# A ```text block after a ```sql block is what psql must print for it. Times, durations,
# process ids and column widths may differ. Because automations run on their own time, a
# block that only reads is asked again until it gives that answer, for at most ten seconds.
# 'show' prints each block with its result; 'check' prints a verdict per block, and the difference.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_dev
mode=${1:?show or check?}
dsn=${2:?which database?}
psql=$(prefix_bin pg)/psql
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One file per block, named by its line: 0042.sql, and 0042.text for the output expected of it.
awk -v dir="$work" '
    /^```/ && inside        { inside = 0; close(file); next }
    /^```sql/               { sql = sprintf("%s/%04d", dir, NR); file = sql ".sql"; inside = 1; next }
    /^```text/ && sql != "" { file = sql ".text"; sql = ""; inside = 1; next }
    /^```/                  { file = "/dev/null"; sql = ""; inside = 1; next }
    inside                  { print > file }
' "$ROOT/README.md"

run() { # FILE [OPTIONS]
    PGOPTIONS="${2:-}" "$psql" -X -v ON_ERROR_STOP=1 "$dsn" <"$1" >"$work/output" 2>&1
}

normalise() {
    sed -E -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+([+-][0-9:]+|Z)?/<time>/g' \
        -e 's/[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?/<duration>/g' \
        -e 's/[0-9]+(\.[0-9]+)? ?(ms|µs|us|s)\b/<duration>/g' \
        -e 's/PID [0-9]+/PID <pid>/' -e 's/-{2,}/-/g' -e 's/ +/ /g' -e 's/^ //' -e 's/ $//' "$1" |
        sed -e '/./,$!d' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
}

as_expected() { diff -u <(normalise "$1") <(normalise "$work/output") >"$work/difference"; }

read_until_expected() {
    local deadline=$((SECONDS + 10))
    until as_expected "$2"; do
        [ $SECONDS -lt $deadline ] || return 0
        sleep 0.05
        run "$1" '-c default_transaction_read_only=on' || return 1
    done
}

failed=0
for block in "$work"/*.sql; do
    [ -e "$block" ] || die "README.md has no sql block"
    expected=${block%.sql}.text
    line=$(basename "$block" .sql | sed 's/^0*//')
    verdict=ok
    : >"$work/difference"
    if [ -e "$expected" ] && run "$block" '-c default_transaction_read_only=on'; then
        read_until_expected "$block" "$expected" || verdict=FAILED
    elif ! run "$block"; then
        verdict=FAILED
        cp "$work/output" "$work/difference"
    fi
    if [ $verdict = ok ] && [ -e "$expected" ]; then as_expected "$expected" || verdict=FAILED; fi
    if [ "$mode" = show ]; then
        awk '{ print (inside ? "tour-# " : "tour=# ") $0; inside = !/;[ \t]*$/ }' "$block"
        cat "$work/output"
    else
        echo "test README.md:$line ... $verdict"
        [ $verdict = ok ] || cat "$work/difference"
    fi
    [ $verdict = ok ] || failed=1
done
exit $failed
