#!/usr/bin/env bash
# Resolve versions with uv: `make locks`. Names of environments resolve their locks alone; --upgrade takes the newest.
#
# constraints.txt is one resolution of everything, so that a package has one version wherever it is tested or shipped.
# lock.txt is the part of it that an environment's requirements.txt and optional.txt need; image-lock.txt is what its
# image.txt adds. Horovod is left out, which install.py builds, and so is what torch's build for CUDA needs. There are no
# hashes: each build of torch pins other packages, and is another file.
set -euo pipefail
cd "$(dirname "$0")/.."
made='# Made by `make locks`; exact versions of all that is installed.'
upgrade=()
if [ "${1:-}" = --upgrade ]; then
    upgrade=(--upgrade)
    shift
fi
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# resolve FILE LIST…: bring the versions in FILE up to what the lists ask for.
resolve() {
    uv pip compile --quiet --python-platform x86_64-manylinux_2_39 --python-version 3.11.9 --no-annotate --no-header \
        --output-file "$@" >/dev/null
    sed -i -E '/^nvidia-ml-py/!{/^(nvidia-|cuda-|triton)/d}' "$1"
}
# lists FOLDER NAME…: the lines of those lists that are there.
lists() {
    for name in "${@:2}"; do
        if [ -f "$1/$name.txt" ]; then grep -v '^horovod' "$1/$name.txt" || true; fi
    done
}

if [ $# = 0 ]; then
    for folder in environments/*/; do lists "$folder" requirements optional image; done |
        sed -E 's/^([A-Za-z0-9_-]+)\[[^]]*\]/\1/' >"$work/all.in" # an extra with CUDA would hold torch back
    cp constraints.txt "$work/all.txt"
    resolve "$work/all.txt" pyproject.toml "$work/all.in" --extra dev "${upgrade[@]}"
    { grep '^#' constraints.txt; cat "$work/all.txt"; } >"$work/constraints.txt"
    cp "$work/constraints.txt" constraints.txt
    set -- $(cd environments && dirname -- */requirements.txt)
fi
for name in "$@"; do
    folder=environments/$name
    lists "$folder" requirements optional >"$work/lock.in"
    : >"$work/lock.txt"
    resolve "$work/lock.txt" "$work/lock.in" --constraint constraints.txt
    { echo "$made"; cat "$work/lock.txt"; } >"$folder/lock.txt"
    [ -f "$folder/image.txt" ] || continue
    lists "$folder" requirements optional image >"$work/image.in"
    cat "$folder/lock.txt" "$folder/image-lock.txt" >"$work/image.txt"
    resolve "$work/image.txt" "$work/image.in" --constraint "$work/lock.txt" --constraint constraints.txt "${upgrade[@]}"
    { echo "$made"; grep -vxFf "$work/lock.txt" "$work/image.txt" || true; } >"$folder/image-lock.txt"
done
