#!/bin/sh
# Installs svcproxy and svclab from a release: downloads the archive for this machine, compares it with the release's checksums, and
# installs nothing if they differ.
#
#     sh install.sh --from ADDRESS-OR-FOLDER [--to FOLDER]
#
# ADDRESS is where the release's files are, as in https://github.com/OWNER/REPOSITORY/releases/download/v0.1.0; FOLDER is /usr/local/bin
# for root and ~/.local/bin for everybody else.
set -eu

say() { printf 'install.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
usage='usage: sh install.sh --from ADDRESS-OR-FOLDER [--to FOLDER]'

from='' to=''
while [ $# -gt 0 ]; do
    case $1 in
        --from | --to) [ $# -ge 2 ] || die "$1 needs a value; $usage" ;;
        *) die "there is no $1; $usage" ;;
    esac
    case $1 in --from) from=${2%/} ;; --to) to=$2 ;; esac
    shift 2
done
[ -n "$from" ] || die "$usage"
if [ -z "$to" ]; then
    if [ "$(id -u)" -eq 0 ]; then to=/usr/local/bin; else to=${HOME:?}/.local/bin; fi
fi

[ "$(uname -s)" = Linux ] || die "there are programs for Linux only"
case $(uname -m) in
    x86_64 | amd64) architecture=amd64 ;;
    aarch64 | arm64) architecture=arm64 ;;
    *) die "there are no programs for $(uname -m)" ;;
esac
command -v sha256sum >/dev/null || die 'there is no sha256sum here (package coreutils)'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Whatever is fetched is looked at only after its sum was compared.
fetch() {
    case $from in
        http://* | https://*)
            if command -v curl >/dev/null; then
                curl --fail --silent --show-error --location --retry 3 --output "$work/$1" "$from/$1"
            elif command -v wget >/dev/null; then
                wget --quiet --tries=3 --output-document="$work/$1" "$from/$1"
            else
                die 'neither curl nor wget is here'
            fi ;;
        file://*) cp -- "${from#file://}/$1" "$work/$1" ;;
        *://*) die "$from is no address that can be fetched: https, http, file or a folder" ;;
        *) cp -- "$from/$1" "$work/$1" ;;
    esac || die "cannot fetch $1 from $from"
}

fetch SHA256SUMS
# Two fields: sum and name. There is one archive of programs for each architecture.
line=$(grep -E "^[0-9a-f]{64}  svcproxy_[0-9A-Za-z.+-]+_linux_$architecture\.tar\.gz\$" "$work/SHA256SUMS") ||
    die "SHA256SUMS of $from names no archive for $architecture"
[ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || die "SHA256SUMS of $from names several archives for $architecture"
archive=${line#*  }
fetch "$archive"
seen=$(sha256sum -- "$work/$archive" | cut -d' ' -f1)
[ "$seen" = "${line%%  *}" ] || die "$archive is not what SHA256SUMS says: $seen instead of ${line%%  *}; nothing is installed"

mkdir -- "$work/programs"
tar --extract --gzip --no-same-owner --file "$work/$archive" --directory "$work/programs" svcproxy svclab
mkdir -p -- "$to"
for program in svcproxy svclab; do
    # In place of a program that runs: under another name first, in the same folder.
    install -m 755 -- "$work/programs/$program" "$to/.$program.new"
    mv -f -- "$to/.$program.new" "$to/$program"
    say "$to/$program: $("$to/$program" --version)"
done
case :$PATH: in *:"$to":*) ;; *) say "$to is not in PATH" ;; esac
