"""``--containers``: each emulated node is a container of the step's image, on docker or podman.

The nodes share the machine's network: they have the loopback addresses and free ports that they have without
containers, so that the tracking server need not listen anywhere else, and nothing has to be set up or removed. Each has
its own host name, processes, /tmp, /dev/shm and system files. Paths inside are those outside.
"""
