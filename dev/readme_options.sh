#!/bin/sh
# readme_options.sh BINARY [--check] [FILE]: the option tables of docs/options.md come from the program itself.
#
# Replaces what stands between the lines `<!-- options -->` and `<!-- /options -->` of FILE (docs/options.md of this tree) by
# the output of `BINARY --help=markdown`. --check changes nothing: it prints the difference and exits 1 if there is one.
# Exit codes: 1 a difference, or a file or mark that is missing; 2 wrong arguments.
set -eu
fail() { echo "readme_options.sh: $1" >&2; exit "$2"; }

binary='' check='' file=''
for argument; do
  case $argument in
    --check) check=yes ;;
    -*) fail "$argument: unknown; usage: readme_options.sh BINARY [--check] [FILE]" 2 ;;
    *) if [ -z "$binary" ]; then binary=$argument; else file=$argument; fi ;;
  esac
done
[ -n "$binary" ] || fail "usage: readme_options.sh BINARY [--check] [FILE]" 2
[ -n "$file" ] || file=$(dirname "$0")/../docs/options.md
[ -f "$file" ] || fail "$file: no such file" 1

folder=$(mktemp -d "${TMPDIR:-/tmp}/readme.XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
"$binary" --help=markdown > "$folder/tables" || fail "$binary --help=markdown failed" 1
[ -s "$folder/tables" ] || fail "$binary --help=markdown printed nothing" 1

# the marks must stand alone on a line, once each, in this order
awk -v tables="$folder/tables" '
  { line = $0; sub(/\r$/, "", line) }
  line == "<!-- options -->" && !opened {
    opened = 1
    print
    print ""
    while ((getline text < tables) > 0) print text
    print ""
    next
  }
  line == "<!-- /options -->" && opened && !closed { closed = 1 }
  !opened || closed { print }
  END { exit !(opened && closed) }
' "$file" > "$folder/new" ||
  fail "$file: needs the line <!-- options --> and, after it, the line <!-- /options -->" 1

if cmp -s "$file" "$folder/new"; then exit 0; fi
if [ -n "$check" ]; then
  diff -u "$file" "$folder/new" >&2 || true
  fail "$file: the option tables differ from $binary --help=markdown; run \`make readme\`" 1
fi
cat "$folder/new" > "$file"
echo "$file: option tables written"
