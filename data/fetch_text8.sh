#!/bin/sh
# fetch_text8.sh [FOLDER]: writes text8 (the first 100,000,000 characters of English Wikipedia, 27 symbols) into FOLDER
# (default data/text8), about 31 MB to download. Use: --data FOLDER/text8 --split 90/5/5
# Needs curl or wget, unzip (or bsdtar, python3), and sha256sum or shasum for the check of the digest.
set -eu

folder=${1:-data/text8}
url=http://mattmahoney.net/dc/text8.zip
zip_size=31344016
zip_sha256=a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232
size=100000000

fail() { echo "fetch_text8.sh: $*" >&2; exit 1; }
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
unpack() {  # ZIP NAME FILE
  if command -v unzip >/dev/null; then unzip -p "$1" "$2" > "$3"
  elif command -v bsdtar >/dev/null; then bsdtar -xOf "$1" "$2" > "$3"
  elif command -v python3 >/dev/null; then
    python3 -c 'import shutil,sys,zipfile
shutil.copyfileobj(zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]), open(sys.argv[3], "wb"))' "$1" "$2" "$3"
  else fail "needs unzip, bsdtar or python3 to unpack, found none; install one of them"; fi
}

if [ -f "$folder/text8" ] && [ "$(size_of "$folder/text8")" = "$size" ]; then
  echo "$folder/text8 is there already ($size bytes)"
  exit 0
fi
mkdir -p "$folder" || fail "cannot make the folder $folder"
part=$(mktemp -d "$folder/part.XXXXXX") || fail "cannot write into $folder"
trap 'rm -rf "$part"' EXIT
trap 'exit 1' HUP INT TERM

echo "downloading $url ($zip_size bytes)"
download "$url" "$part/zip" || fail "cannot download $url; check the network and run this again"
have=$(size_of "$part/zip")
[ "$have" = "$zip_size" ] || fail "$url: $have bytes, need $zip_size; run this again"
digest=$(sha256_of "$part/zip")
if [ "$digest" = unknown ]; then echo "sha256 not checked: neither sha256sum nor shasum found"
elif [ "$digest" != "$zip_sha256" ]; then fail "$url: sha256 $digest, need $zip_sha256; run this again"
else echo "sha256 $digest, as published"; fi
unpack "$part/zip" text8 "$part/text8" || fail "cannot unpack $url; is the disk full?"
have=$(size_of "$part/text8")
[ "$have" = "$size" ] || fail "text8 unpacks to $have bytes, need $size"
mv "$part/text8" "$folder/text8"
echo "$folder/text8: $size bytes"
