#!/usr/bin/env bash
# pgspot.sh DIRECTORY: the extension's scripts there must look up every operator, function and type in pg_catalog alone,
# and replace nothing that stood ready beforehand. pgspot finds the places that do not; none is allowed.
# shellcheck source-path=SCRIPTDIR/../scripts
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
directory=${1:?which directory?}
pgspot=$(pgspot_home)/bin/pgspot
[ -x "$pgspot" ] || die "pgspot $PGSPOT_VERSION is not installed" \
    "It comes from PyPI: run 'scripts/setup.sh tests' with a network that reaches it."

verdict=0
found=0
for script in "$directory/$EXTENSION"--*.sql; do
    [ -e "$script" ] || continue
    found=1
    flat=$(mktemp)
    if ! python3 "$ROOT/tests/pgspot.py" "$script" >"$flat" || ! "$pgspot" "$flat"; then
        echo "in $script"
        verdict=1
    fi
    rm -f "$flat"
done
[ $found -eq 1 ] || die "there is no script of the extension in $directory" "Run 'scripts/build.sh pg-e2e failpoints' first."
exit $verdict
