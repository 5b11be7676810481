#!/usr/bin/env bash
# Installs what is missing and prepares .dev: private copies of the server, and cargo-pgrx
# pointed at them. Safe to run again; does nothing then. Never touches a server that is there.
# "setup.sh tests" also installs what only the tests need.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
purpose=${1:-}

missing_packages() {
    [ -x "$SYSTEM_PG/bin/postgres" ] || echo "postgresql-$PG_MAJOR"
    [ -f "/usr/include/postgresql/$PG_MAJOR/server/postgres.h" ] &&
        [ -x "$SYSTEM_PG/lib/pgxs/src/test/isolation/pg_isolation_regress" ] ||
        echo "postgresql-server-dev-$PG_MAJOR"
    compgen -G '/usr/lib/llvm-*/lib/libclang.so*' >/dev/null || echo libclang-dev
    command -v clang >/dev/null || compgen -G '/usr/bin/clang-[0-9]*' >/dev/null || echo clang
    command -v cc >/dev/null || echo build-essential
    command -v pkg-config >/dev/null || echo pkg-config
    [ -f /usr/include/openssl/ssl.h ] || echo libssl-dev
    # cargo pgrx test drops its rights through sudo
    ! is_root || command -v sudo >/dev/null || echo sudo
    # Debian keeps what makes a Python environment in a package of its own
    [ "$purpose" != tests ] || [ -x "$(pgspot_home)/bin/pgspot" ] ||
        python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
}

privileged() {
    if is_root; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "missing packages need root, and there is no sudo" "As root: apt-get install $packages"
    fi
}

apt_install() {
    privileged env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

install_packages() {
    local packages
    packages=$(missing_packages | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    command -v apt-get >/dev/null || die "missing: $packages" \
        "Install them by hand; only Debian and its kin are handled here."
    say "installing $packages"
    privileged apt-get update -q
    if [[ $packages == *postgresql-$PG_MAJOR\ * ]] && ! dpkg -s postgresql-common >/dev/null 2>&1; then
        # Debian creates and starts a cluster with the server package. Nobody asked for one.
        apt_install postgresql-common
        privileged sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' \
            /etc/postgresql-common/createcluster.conf
    fi
    # shellcheck disable=SC2086 # a list of names
    apt_install $packages
}

install_cargo_pgrx() {
    command -v cargo >/dev/null || die "cargo is not on PATH" "Install Rust from https://rustup.rs, then run this again."
    ! find_cargo_pgrx >/dev/null || return 0
    say "building cargo-pgrx $PGRX_VERSION, kept in $(cargo_pgrx_home) (once, some minutes)"
    cargo install cargo-pgrx --version "=$PGRX_VERSION" --locked --root "$(cargo_pgrx_home)"
}

# Without one of the following three all but one test can run, and that one says what is missing; so a machine that cannot
# reach Debian's archive, PyPI or crates.io is not stopped here.
install_shellcheck() {
    local packages=shellcheck
    ! command -v shellcheck >/dev/null || return 0
    say "installing shellcheck"
    (privileged apt-get update -q && apt_install shellcheck) ||
        warn "shellcheck could not be installed; the test shellcheck will fail"
}

install_pgspot() {
    local home
    home=$(pgspot_home)
    [ ! -x "$home/bin/pgspot" ] || return 0
    say "installing pgspot $PGSPOT_VERSION, kept in $home (once)"
    rm -rf "$home"
    { python3 -m venv "$home" && "$home/bin/pip" install -q --disable-pip-version-check "pgspot==$PGSPOT_VERSION"; } ||
        { rm -rf "$home" && warn "pgspot $PGSPOT_VERSION could not be installed; the test pgspot will fail"; }
}

# Without the link-time optimization that its authors chose for their own binaries: here the program runs for a second or two.
install_cargo_deny() {
    local home
    home=$(cargo_deny_home)
    [ ! -x "$home/bin/cargo-deny" ] || return 0
    say "building cargo-deny $DENY_VERSION, kept in $home (once, some minutes)"
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
        cargo install cargo-deny --version "=$DENY_VERSION" --locked --root "$home" ||
        warn "cargo-deny $DENY_VERSION could not be built; the test cargo-deny will fail"
}

# Debian's server finds its files relative to its own place, so a copy of it is a server of
# its own: extensions installed there are invisible to every other server of the machine.
relocate() {
    local prefix=$DEV/$1 stamp
    stamp=$("$SYSTEM_PG/bin/postgres" --version)
    [ "$(cat "$prefix/.copied" 2>/dev/null)" != "$stamp" ] || return 0
    say "copying $stamp to .dev/$1"
    rm -rf "$prefix"
    mkdir -p "$prefix/lib/postgresql" "$prefix/share/postgresql" "$prefix/include"
    cp -a "$SYSTEM_PG" "$prefix/lib/postgresql/"
    cp -a "/usr/share/postgresql/$PG_MAJOR" "$prefix/share/postgresql/"
    ln -s /usr/include/postgresql "$prefix/include/postgresql"
    rm -f "$(prefix_lib "$1")/$EXTENSION"* "$(prefix_extensions "$1")/$EXTENSION"*
    echo "$stamp" >"$prefix/.copied"
}

# pg: the release build, for 'make up' and 'make bench'. pg-test: what cargo pgrx test
# installs. pg-e2e: the release build with failpoints, for every test with live servers.
prepare_servers() {
    local name
    for name in pg pg-test pg-e2e; do relocate "$name"; done
    mkdir -p "$DEV/pgrx"
    # What 'cargo pgrx init' would write, without its data directory. Kept untouched if it
    # is right: a newer file makes the bindings, and all that follows, build again.
    printf '[configs]\npg%s = "%s"\n' "$PG_MAJOR" "$(prefix_bin pg-test)/pg_config" >"$DEV/pgrx/config.toml.new"
    replace_if_changed "$DEV/pgrx/config.toml.new" "$DEV/pgrx/config.toml"
}

install_packages
ensure_dev
install_cargo_pgrx
if [ "$purpose" = tests ]; then
    install_shellcheck
    install_pgspot
    install_cargo_deny
fi
prepare_servers
