#!/usr/bin/env bash
# Takes the last results of the golden layers as the expected output. Read 'git diff' afterwards:
# what it shows is what users will notice.
# shellcheck source-path=SCRIPTDIR/../scripts
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
require_dev
accept() { # LAYER FILE...
    local layer=$1 file
    shift
    for file in "$@"; do
        if [ -e "$file" ]; then cp "$file" "$ROOT/tests/$layer/expected/"; fi
    done
}
accept pg_regress "$DEV/results/pg_regress/results"/*.out
accept isolation "$DEV/results/isolation"/*.digest
git -C "$ROOT" status --short tests
