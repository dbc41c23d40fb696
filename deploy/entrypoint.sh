#!/bin/sh
# Runs `pulsarish` with what only the container knows: its address, and which data directory is its own. Every option that is set
# (PULSARISH_BOOKIE__..., PULSARISH_BROKER__...) is left as it is.
set -eu

# By number, not by name: a container that comes back has another address, and a name that was looked up before still gives the old one.
ip=$(hostname -i | cut -d ' ' -f 1)

case "${1:-}" in
bookie)
    if [ -z "${PULSARISH_BOOKIE__BOOKIE_ID:-}" ]; then
        # Replicas share one volume. Each takes the first directory in it that no other holds, and is the bookie of that directory, whatever
        # container it runs in. The lock belongs to the open file, which the server inherits: it ends with the server, also after SIGKILL.
        data=${PULSARISH_BOOKIE__DATA_DIRECTORY:-/var/lib/pulsarish}
        number=1
        exec 9> "$data/bookie-$number.lock"
        until flock --nonblock 9; do
            number=$((number + 1))
            exec 9> "$data/bookie-$number.lock"
        done
        export PULSARISH_BOOKIE__BOOKIE_ID="bookie-$number" PULSARISH_BOOKIE__DATA_DIRECTORY="$data/bookie-$number"
    fi
    export PULSARISH_BOOKIE__LISTEN_ADDRESS="${PULSARISH_BOOKIE__LISTEN_ADDRESS:-0.0.0.0:3181}"
    export PULSARISH_BOOKIE__HTTP_ADDRESS="${PULSARISH_BOOKIE__HTTP_ADDRESS-0.0.0.0:8000}"
    export PULSARISH_BOOKIE__ADVERTISED_ADDRESS="${PULSARISH_BOOKIE__ADVERTISED_ADDRESS:-$ip}"
    ;;
broker)
    export PULSARISH_BROKER__LISTEN_ADDRESS="${PULSARISH_BROKER__LISTEN_ADDRESS-0.0.0.0:6660}"
    export PULSARISH_BROKER__HTTP_ADDRESS="${PULSARISH_BROKER__HTTP_ADDRESS-0.0.0.0:8080}"
    export PULSARISH_BROKER__PULSAR_ADDRESS="${PULSARISH_BROKER__PULSAR_ADDRESS-0.0.0.0:6650}"
    if [ -n "${PULSARISH_BROKER__ADVERTISED_LISTENERS:-}" ]; then
        # {ip} in an address is the container's own.
        PULSARISH_BROKER__ADVERTISED_LISTENERS=$(printf %s "$PULSARISH_BROKER__ADVERTISED_LISTENERS" | sed "s/{ip}/$ip/g")
        export PULSARISH_BROKER__ADVERTISED_LISTENERS
    else
        export PULSARISH_BROKER__ADVERTISED_ADDRESS="${PULSARISH_BROKER__ADVERTISED_ADDRESS:-$ip}"
    fi
    ;;
proxy)
    export PULSARISH_PROXY__PULSAR_ADDRESS="${PULSARISH_PROXY__PULSAR_ADDRESS-0.0.0.0:6650}"
    export PULSARISH_PROXY__CONNECT_ADDRESS="${PULSARISH_PROXY__CONNECT_ADDRESS-0.0.0.0:6655}"
    export PULSARISH_PROXY__HTTP_ADDRESS="${PULSARISH_PROXY__HTTP_ADDRESS-0.0.0.0:8080}"
    ;;
metadata)
    export PULSARISH_METADATA__LISTEN_ADDRESS="${PULSARISH_METADATA__LISTEN_ADDRESS-0.0.0.0:2181}"
    export PULSARISH_METADATA__HTTP_ADDRESS="${PULSARISH_METADATA__HTTP_ADDRESS-0.0.0.0:8100}"
    export PULSARISH_METADATA__DATA_DIRECTORY="${PULSARISH_METADATA__DATA_DIRECTORY:-/var/lib/pulsarish/metadata}"
    ;;
esac
exec pulsarish "$@"
