#!/usr/bin/env bash
# Takes the last results of the golden layers as the expected output. Read 'git diff' afterwards:
# what it shows is what users will notice.
# shellcheck source-path=SCRIPTDIR/../scripts
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
require_dev
for layer in pg_regress isolation; do
    results=$DEV/results/$layer
    [ ! -d "$results/results" ] || results=$results/results # where pg_regress puts them
    for file in "$results"/*.out; do
        [ -e "$file" ] || continue
        [ "$(basename "$file")" != regression.out ] || continue
        cp "$file" "$ROOT/tests/$layer/expected/"
    done
done
git -C "$ROOT" status --short tests
