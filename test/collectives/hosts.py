# SPDX-License-Identifier: Apache-2.0
"""Two hosts as network namespaces, with a wire between them (a pair of veth). Root makes them, or whoever may make a
user namespace; `ip` is of iproute2."""

import os
import subprocess


class NoHosts(Exception):
    pass


class Hosts:
    ADDRESSES = ("10.213.77.1", "10.213.77.2")

    def __init__(self):
        self.holders = []
        self.enter = []  # of each, what runs a command there
        try:
            root = self.here = []  # what comes before a command on this host, as the user that made the others
            if os.geteuid() != 0:
                user = self.hold("unshare", "--user", "--map-root-user")
                root = self.here = ["nsenter", f"--target={user}", "--user", "--preserve-credentials"]
            holders = [self.hold(*root, "unshare", "--net", "--uts") for _ in self.ADDRESSES]
            self.enter = [[*root, "nsenter", f"--target={holder}", "--net", "--uts"] for holder in holders]
            self.run(0, f"ip link add name wire type veth peer name wire netns {holders[1]}")
            for host, address in enumerate(self.ADDRESSES):
                self.run(host, f"hostname host{host}")
                self.run(host, f"ip address add {address}/24 dev wire")
                self.run(host, "ip link set wire up")
                self.run(host, "ip link set lo up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.end()
            raise NoHosts(f"{error}: {getattr(error, 'stderr', '')}") from error

    def hold(self, *command):
        """A process that stays; its number is that of the command."""
        process = subprocess.Popen([*command, "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        self.holders.append(process)
        if not process.stdout.readline():
            raise OSError(f"{' '.join(command)} failed")
        return process.pid

    def run(self, host, command):
        subprocess.run([*self.enter[host], *command.split()], check=True, capture_output=True, text=True)

    def cut(self):
        """The second host vanishes: nothing that is sent arrives, and no error is reported."""
        self.run(1, "ip link set wire down")

    def mend(self):
        self.run(1, "ip link set wire up")

    def variables(self, ranks_each):
        """What a launcher sets."""
        return {
            "MASTER_ADDR": self.ADDRESSES[0],
            "WORLD_SIZE": str(2 * ranks_each),
            "LOCAL_WORLD_SIZE": str(ranks_each),
        }

    def end(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()
