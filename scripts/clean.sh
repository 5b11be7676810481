#!/usr/bin/env bash
# make clean: stops our servers and removes everything built or made in this checkout.
# cargo-pgrx is kept: it belongs to the machine and takes minutes to build.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ -e "$ROOT/.dev" ]; then
    require_dev
    for dir in "$DEV"/clusters/*/; do
        [ ! -d "$dir" ] || "$ROOT/scripts/cluster.sh" destroy "$(basename "$dir")"
    done
    rm -rf "$DEV"
fi
rm -rf "$ROOT/.dev"
cd "$ROOT" && cargo clean
