#!/usr/bin/env bash
# build.sh PREFIX [FEATURES]: builds the extension in release mode and installs it into the
# private server .dev/PREFIX. A prefix of "system" is the server whose pg_config is on PATH.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_dev

prefix=${1:?which server?}
features=${2:-}
if [ "$prefix" = system ]; then
    config=${PG_CONFIG:-$(command -v pg_config || true)}
    [ -n "$config" ] || die "no pg_config on PATH" "Name it: make install PG_CONFIG=/path/to/pg_config"
else
    config=$(prefix_bin "$prefix")/pg_config
fi

sudo_option=()
if [ ! -w "$("$config" --pkglibdir)" ]; then sudo_option=(--sudo); fi
cd "$ROOT"
pgrx install --release --pg-config "$config" "${sudo_option[@]}" ${features:+--features "$features"}
