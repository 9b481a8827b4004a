#!/bin/sh
# generated.sh BINARY [--check]: the parts of the book that come from the program itself.
#
#   docs/options.md   between <!-- options --> and <!-- /options -->: BINARY --help=markdown
#   README.md         between <!-- methods --> and <!-- /methods -->: BINARY methods --markdown
#
# --check changes nothing: it prints the differences and exits 1 if there is one.
# Exit codes: 1 a difference, or a file or mark that is missing; 2 wrong arguments.
set -eu
fail() { echo "generated.sh: $1" >&2; exit "$2"; }

binary=${1:-} check=${2:-}
[ $# -ge 1 ] && [ $# -le 2 ] && [ "${check:---check}" = --check ] || fail "usage: generated.sh BINARY [--check]" 2
root=$(dirname "$0")/..
folder=$(mktemp -d "${TMPDIR:-/tmp}/generated.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM

part() {  # FILE MARK ARGUMENTS...: the marks must stand alone on a line, once each, in this order
  file=$root/$1 mark=$2
  shift 2
  [ -f "$file" ] || fail "$file: no such file" 1
  "$binary" "$@" >"$folder/text" || fail "$binary $* failed" 1
  [ -s "$folder/text" ] || fail "$binary $* printed nothing" 1
  awk -v text="$folder/text" -v from="<!-- $mark -->" -v to="<!-- /$mark -->" '
    { line = $0; sub(/\r$/, "", line) }
    line == from && !opened {
      opened = 1
      print
      print ""
      while ((getline row < text) > 0) print row
      print ""
      next
    }
    line == to && opened && !closed { closed = 1 }
    !opened || closed { print }
    END { exit !(opened && closed) }
  ' "$file" >"$folder/new" || fail "$file: needs the line <!-- $mark --> and, after it, the line <!-- /$mark -->" 1
  if cmp -s "$file" "$folder/new"; then return; fi
  if [ -n "$check" ]; then
    diff -u "$file" "$folder/new" >&2 || true
    fail "$file: differs from $binary $*; run \`make readme\`" 1
  fi
  cat "$folder/new" >"$file"
  echo "$file: $mark written"
}
part docs/options.md options --help=markdown
part README.md methods methods --markdown
