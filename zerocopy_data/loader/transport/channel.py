"""Messages over a socket pair: a worker's batches one way, with the files of new slots; releases the other way.

Sockets of one worker are its own: a worker that is killed in the middle of a message harms nobody else. Packets keep
their borders (SOCK_SEQPACKET), and bodies too large for one travel in a slot.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import struct
import time

from ... import _native
from ...memory.slots import MAX_OPEN, Slot, SlotPool
from .envelope import Packed, pack

# Bodies up to this size are sent as they are. The kernel's default send buffer takes about 200 kB.
INLINE_BYTES = 32 << 10
# slots announced, slots dropped, slot of the body or -1, length of the body
_HEADER = struct.Struct("=IIqq")
RELEASE = struct.Struct("=q?")

_MAX_DROPPED = 4096
_RETRY_SECONDS = 0.005
PACKET_BYTES = _HEADER.size + 16 * MAX_OPEN + 8 * _MAX_DROPPED + INLINE_BYTES
_ANCILLARY = socket.CMSG_SPACE(4 * MAX_OPEN)


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, neither inherited by programs that are started."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Sender:
    """The worker's end: sends batches, learns of releases."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._gone = False
        self.pool = SlotPool(self._releases, self._announce)
        self._dropped: list[int] = []

    def send(self, value: object) -> None:
        """Sends a value; does nothing when the consumer is gone. What cannot be pickled raises, and nothing is sent."""
        packed = pack(value, self.pool)
        where, inline = self._place(packed)
        self._dropped += self.pool.tick()
        while len(self._dropped) > _MAX_DROPPED:
            gone, self._dropped = self._dropped[:_MAX_DROPPED], self._dropped[_MAX_DROPPED:]
            self._packet([], gone, -1, 0, b"")
        gone, self._dropped = self._dropped, []
        for slot in packed.slots:
            slot.remote += 1
        self._packet(self.pool.take_unannounced(), gone, where, packed.size, inline)

    def _announce(self, slots: list[Slot]) -> None:
        self._packet(slots, [], -1, 0, b"")

    def _place(self, packed: Packed) -> tuple[int, bytes]:
        if packed.size <= INLINE_BYTES:
            return -1, b"".join(packed.parts)
        slot, lease = self.pool.lease(packed.size)
        body, place = memoryview(lease), 0
        for part in packed.parts:
            end = place + memoryview(part).nbytes
            body[place:end] = part
            place = end
        packed.slots.append(slot)
        packed.leases.append(lease)
        return slot.number, b""

    def _packet(self, files: list[Slot], gone: list[int], where: int, size: int, inline: bytes) -> None:
        numbers = array.array("q", gone)
        for slot in files:
            numbers.extend((slot.number, slot.mapping.size))
        descriptors = array.array("i", [slot.descriptor for slot in files if slot.descriptor is not None])
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if files else []
        header = _HEADER.pack(len(files), len(gone), where, size)
        while not self._gone:
            try:
                self._connection.sendmsg([header, numbers, inline], ancillary, socket.MSG_NOSIGNAL)
                break
            except ConnectionError:  # the consumer is closing, or dead: the loop around us will notice
                self._gone = True
            except OSError as error:
                # The system counts descriptors that are on their way against our limit, until they are received.
                if error.errno != errno.ETOOMANYREFS:
                    raise
                time.sleep(_RETRY_SECONDS)
        for slot in files:
            slot.close()

    def _releases(self) -> list[tuple[int, bool]]:
        found: list[tuple[int, bool]] = []
        while True:
            try:
                packet = self._connection.recv(RELEASE.size, socket.MSG_DONTWAIT)
            except (BlockingIOError, ConnectionError):
                return found
            if not packet:
                return found
            found.append(RELEASE.unpack(packet))

    def is_alone(self) -> bool:
        """Whether the consumer has closed its end, or died."""
        poll = select.poll()
        poll.register(self._connection, 0)  # hang-ups are always reported
        return bool(poll.poll(0))

    def close(self) -> None:
        """Closes the socket."""
        self._connection.close()


class Message:
    """One packet, taken apart."""

    def __init__(self, packet: memoryview, descriptors: list[int]) -> None:
        made, gone, self.slot, self.size = _HEADER.unpack_from(packet)
        numbers = array.array("q")
        end = _HEADER.size + 8 * (gone + 2 * made)
        numbers.frombytes(packet[_HEADER.size : end])
        self.gone = numbers[:gone]
        self.made: list[tuple[int, _native.Mapping]] = []
        try:
            if len(descriptors) != made:
                raise OSError(errno.EMFILE, "Too many open files: a worker's memory could not be taken over")
            for i, descriptor in enumerate(descriptors):
                number, size = numbers[gone + 2 * i : gone + 2 * i + 2]
                self.made.append((number, _native.Mapping(descriptor, size)))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.body = packet[end:]


def receive(connection: socket.socket) -> Message | None:
    """The next message, without waiting; None at the end of the connection.

    Raises:
        BlockingIOError: there is none yet.
        OSError: the process has too few file descriptors left.
    """
    packet, ancillary, _, _ = connection.recvmsg(
        PACKET_BYTES, _ANCILLARY, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    )
    if not packet:
        return None
    descriptors: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            some = array.array("i")
            some.frombytes(data[: len(data) - len(data) % 4])
            descriptors += some
    return Message(memoryview(packet), descriptors)
