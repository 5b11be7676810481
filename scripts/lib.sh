# shellcheck shell=bash
# Paths, messages and the user the server runs as. Sourced by every script here; does nothing by itself.
set -euo pipefail
umask 022 # the server's own user must be able to read what we build

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PG_MAJOR=15
# shellcheck disable=SC2034 # used by setup.sh
SYSTEM_PG=/usr/lib/postgresql/$PG_MAJOR
PGRX_VERSION=$(sed -n 's/^pgrx *= *"=\([0-9.]*\)".*/\1/p' "$ROOT/Cargo.toml" | head -n 1)
EXTENSION=automation_engine
export USER="${USER:-$(id -un)}" # unset in bare containers, and pgrx-tests insists on it

say() { printf '==> %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
    exit 1
}

is_root() { [ "$(id -u)" -eq 0 ]; }

# PostgreSQL refuses to run as root; then its processes belong to the package's user.
server_user() { if is_root; then echo postgres; else id -un; fi; }

# Runs a server program as the user who owns the clusters. From /, because that user
# may not be allowed to enter the caller's directory; without RUST_BACKTRACE, because pgrx
# would put the trace into the DETAIL of errors.
as_server() {
    local invocation=(env -u RUST_BACKTRACE -u RUST_LIB_BACKTRACE "$@")
    if is_root; then invocation=(runuser -u postgres -- "${invocation[@]}"); fi
    (cd / && "${invocation[@]}")
}

# .dev holds all that the commands make: servers, clusters, logs. It must be a directory
# the server's user can enter; a checkout under /root is not, so there .dev is a link.
ensure_dev() {
    local link=$ROOT/.dev
    if [ ! -e "$link" ] && [ ! -L "$link" ]; then
        if as_server test -x "$ROOT"; then
            mkdir "$link"
        else
            local elsewhere
            elsewhere=$(mktemp -d "/var/tmp/$EXTENSION.XXXXXX")
            chmod 755 "$elsewhere"
            ln -s "$elsewhere" "$link"
            say "user $(server_user) cannot enter $ROOT: .dev is a link to $elsewhere"
        fi
    elif [ ! -e "$link" ]; then
        die "$link points to a directory that is gone" "Remove the link and run the command again."
    fi
    DEV=$(cd "$link" && pwd -P)
    as_server test -x "$DEV" || die "user $(server_user) cannot enter $DEV, so no server can run there" \
        "Either make every directory above it traversable (chmod o+x)," \
        "or run 'make clean' and start again: a new place is then chosen."
}

# The same, for commands that only make sense after 'make up' or 'make test'.
require_dev() {
    [ -e "$ROOT/.dev" ] || die "nothing has been set up in this checkout yet" "Run 'make up' first."
    DEV=$(cd "$ROOT/.dev" && pwd -P)
}

# cargo-pgrx at the pinned version: the one on PATH if it is that version, else our own
# copy, which outlives 'make clean' and does not disturb another project's version.
cargo_pgrx_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/$EXTENSION/cargo-pgrx-$PGRX_VERSION"; }
is_pinned_pgrx() { [ "$("$1" pgrx --version 2>/dev/null)" = "cargo-pgrx $PGRX_VERSION" ]; }
find_cargo_pgrx() {
    local candidate
    for candidate in "$(command -v cargo-pgrx || true)" "${CARGO_HOME:-$HOME/.cargo}/bin/cargo-pgrx" \
        "$(cargo_pgrx_home)/bin/cargo-pgrx"; do
        if [ -x "$candidate" ] && is_pinned_pgrx "$candidate"; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# pgspot at a pinned version, in a Python environment of its own beside cargo-pgrx. Only the tests need it.
# shellcheck disable=SC2034 # used by setup.sh
PGSPOT_VERSION=0.9.4
pgspot_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/$EXTENSION/pgspot-$PGSPOT_VERSION"; }

# cargo-deny at a pinned version, beside cargo-pgrx. Only the tests need it.
# shellcheck disable=SC2034 # used by setup.sh
DENY_VERSION=0.20.2
cargo_deny_home() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/$EXTENSION/cargo-deny-$DENY_VERSION"; }
cargo_deny() {
    local program
    program=$(cargo_deny_home)/bin/cargo-deny
    if [ ! -x "$program" ]; then
        warn "cargo-deny $DENY_VERSION is not installed: run 'scripts/setup.sh tests' with a network that reaches crates.io"
        return 1
    fi
    "$program" "$@"
}

# Calls cargo-pgrx with this checkout's registry of servers.
pgrx() {
    local program
    program=$(find_cargo_pgrx) || die "cargo-pgrx $PGRX_VERSION is not installed" "Run 'make up' first."
    PGRX_HOME=$DEV/pgrx "$program" pgrx "$@"
}

# A private copy of the server; see relocate in setup.sh.
prefix_bin() { echo "$DEV/$1/lib/postgresql/$PG_MAJOR/bin"; }
prefix_lib() { echo "$DEV/$1/lib/postgresql/$PG_MAJOR/lib"; }
prefix_extensions() { echo "$DEV/$1/share/postgresql/$PG_MAJOR/extension"; }

# What the installed extension consists of, as one checksum.
installed_checksum() {
    { cat "$(prefix_lib "$1")/$EXTENSION.so" "$(prefix_extensions "$1")/$EXTENSION"* 2>/dev/null || true; } | cksum
}

# Moves a file into place only if that changes it, so that nothing depending on its time is rebuilt.
replace_if_changed() {
    if [ -f "$2" ] && cmp -s "$1" "$2"; then rm -f "$1"; else mv "$1" "$2"; fi
}
