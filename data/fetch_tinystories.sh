#!/bin/sh
# fetch_tinystories.sh [FOLDER] [v2|v1] [train|valid]: writes TinyStories (Eldan and Li 2023, CDLA-Sharing-1.0) into
# FOLDER (default data/tinystories). v2 (default): the stories by GPT-4 only, 2.25 GB; v1: the original mix, 1.94 GB.
# Third argument: only that file.
# Use: --data FOLDER/TinyStoriesV2-GPT4-train.txt --val FOLDER/TinyStoriesV2-GPT4-valid.txt
# Needs curl or wget, and sha256sum or shasum for the check of the digests.
set -eu

folder=${1:-data/tinystories}
version=${2:-v2}
only=${3:-}
base=https://huggingface.co/datasets/roneneldan/TinyStories/resolve/main

fail() { echo "fetch_tinystories.sh: $*" >&2; exit 1; }
size_of() { wc -c < "$1" | tr -d ' '; }
sha256_of() {
  if command -v sha256sum >/dev/null; then sha256sum "$1" | cut -d' ' -f1
  elif command -v shasum >/dev/null; then shasum -a 256 "$1" | cut -d' ' -f1
  else echo unknown; fi
}
download() {  # URL FILE
  if command -v curl >/dev/null; then curl -fsSL --connect-timeout 20 -o "$2" "$1" 2>/dev/null
  elif command -v wget >/dev/null; then wget -q --timeout=20 --tries=2 -O "$2" "$1" 2>/dev/null
  else fail "needs curl or wget, found neither; install one of them"; fi
}
fetch() {  # NAME SIZE SHA256
  name=$1; size=$2; sha256=$3
  if [ -f "$folder/$name" ] && [ "$(size_of "$folder/$name")" = "$size" ]; then
    echo "$folder/$name is there already ($size bytes)"
    return
  fi
  echo "downloading $base/$name ($size bytes)"
  download "$base/$name" "$part/text" || fail "cannot download $base/$name; check the network and run this again"
  have=$(size_of "$part/text")
  [ "$have" = "$size" ] || fail "$base/$name: $have bytes, need $size; run this again"
  digest=$(sha256_of "$part/text")
  if [ "$digest" = unknown ]; then echo "sha256 not checked: neither sha256sum nor shasum found"
  elif [ "$digest" != "$sha256" ]; then fail "$base/$name: sha256 $digest, need $sha256; run this again"
  else echo "sha256 $digest, as published"; fi
  mv "$part/text" "$folder/$name"
  echo "$folder/$name: $size bytes"
}

case "$version" in v1|v2) ;; *) fail "version '$version', need v1 or v2" ;; esac
case "$only" in ''|train|valid) ;; *) fail "file '$only', need train or valid" ;; esac
mkdir -p "$folder" || fail "cannot make the folder $folder"
part=$(mktemp -d "$folder/part.XXXXXX") || fail "cannot write into $folder"
trap 'rm -rf "$part"' EXIT
trap 'exit 1' HUP INT TERM

case "$version-${only:-valid}" in
  v2-valid) fetch TinyStoriesV2-GPT4-valid.txt 22502601 \
    6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d ;;
  v1-valid) fetch TinyStories-valid.txt 19447282 94e431816c4cce81ff71e4408ff8d3bda9a42e8d2663986697c3954288cb38b4 ;;
esac
case "$version-${only:-train}" in
  v2-train) fetch TinyStoriesV2-GPT4-train.txt 2227753162 \
    6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443 ;;
  v1-train) fetch TinyStories-train.txt 1924281556 c5cf5e22ff13614e830afbe61a99fbcbe8bcb7dd72252b989fa1117a368d401f ;;
esac
