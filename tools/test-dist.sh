#!/usr/bin/env bash
# Builds a release twice with tools/dist.sh and compares every byte. The two copies of the source differ in their folder,
# and the second build has another umask, time zone, language and cargo folder.
#
# Takes two release builds; each needs about 2 GB, which are freed after it.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
folder=$target/test-dist
unset CARGO_TARGET_DIR
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

copy() { # copy NAME: the files that git knows or does not ignore
  mkdir -p "$folder/$1/target" "$target/tools"
  git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from - | tar --extract --directory "$folder/$1"
  ln -s "$target/tools" "$folder/$1/target/tools"
}

build() { # build NAME RESULT
  bash "$folder/$1/tools/dist.sh" --out "$folder/$2"
  rm -rf "${folder:?}/$1"
}

rm -rf "$folder"
first=a
second=another/and-a-longer-folder
copy "$first"
copy "$second"
build "$first" first
(
  umask 077
  ln -s "${CARGO_HOME:-$HOME/.cargo}" "$folder/cargo-home"
  export CARGO_HOME=$folder/cargo-home TZ=Asia/Ho_Chi_Minh LANG=vi_VN.UTF-8
  build "$second" second
)

failed=0
for file in "$folder"/first/*; do
  if cmp "$file" "$folder/second/${file##*/}"; then
    printf 'identical: %s\n' "${file##*/}"
  else
    failed=$((failed + 1))
  fi
done
((failed == 0)) || printf 'hint: diffoscope shows how two files differ\n' >&2
printf '\n%s of %s files differ\n' "$failed" "$(find "$folder/first" -type f | wc -l)"
((failed == 0))
