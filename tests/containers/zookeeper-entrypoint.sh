#!/bin/bash
# What the official image does with the variables of the compose file.
set -eu
cat > /tmp/zoo.cfg <<EOF
dataDir=/data
dataLogDir=/datalog
clientPort=2181
tickTime=${ZOO_TICK_TIME:-2000}
initLimit=${ZOO_INIT_LIMIT:-5}
syncLimit=${ZOO_SYNC_LIMIT:-2}
maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}
autopurge.snapRetainCount=${ZOO_AUTOPURGE_SNAPRETAINCOUNT:-3}
autopurge.purgeInterval=${ZOO_AUTOPURGE_PURGEINTERVAL:-0}
admin.enableServer=false
4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}
EOF
if [ -n "${ZOO_SERVERS:-}" ]; then
    sed -i /^clientPort=/d /tmp/zoo.cfg  # each entry has its own
    printf '%s\n' $ZOO_SERVERS >> /tmp/zoo.cfg
    [ -f /data/myid ] || echo "$ZOO_MY_ID" > /data/myid
fi
exec /opt/java/bin/java ${JVMFLAGS:-} -cp "/opt/zookeeper/*" org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
