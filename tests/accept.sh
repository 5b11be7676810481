#!/usr/bin/env bash
# Takes the last results of the golden layers as the expected output. Read 'git diff' afterwards:
# what it shows is what users will notice.
# shellcheck source-path=SCRIPTDIR/../scripts
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
require_dev
for layer in pg_regress isolation; do
    for file in "$DEV/results/$layer/results"/*.out; do
        if [ -e "$file" ]; then cp "$file" "$ROOT/tests/$layer/expected/"; fi
    done
done
git -C "$ROOT" status --short tests
