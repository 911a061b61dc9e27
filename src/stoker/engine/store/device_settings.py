"""Devices that the daemon published, and persistent settings of GPUs."""

from __future__ import annotations

from stoker.engine.model import Device
from stoker.engine.store.database import Database
from stoker.engine.store.meta import set_meta


def device_settings(db: Database) -> list[tuple[str, bool, int | None, str | None]]:
    """Return (uuid, drained, slots, quarantine) of all GPUs with settings."""
    rows = db.execute("SELECT uuid, drained, slots, quarantine FROM device_settings")
    return [(uuid, bool(drained), slots, why) for uuid, drained, slots, why in rows]


def device_shares(db: Database) -> dict[str, str]:
    """Return how jobs share the GPUs for which a user has set it, by UUID."""
    return dict(db.execute("SELECT uuid, share FROM device_settings WHERE share IS NOT NULL"))


def quarantine(db: Database, uuid: str, why: str) -> None:
    """Exclude a GPU with errors until a user restores it."""
    db.execute("INSERT OR IGNORE INTO device_settings (uuid) VALUES (?)", (uuid,))
    # An UPDATE also if the row is new: a trigger makes a notification of it.
    db.execute("UPDATE device_settings SET quarantine = ? WHERE uuid = ?", (why, uuid))


def set_devices(db: Database, devices: tuple[Device, ...], cpu_slots: int) -> None:
    """Publish the devices of the host for `submit`, `why` and the web UI."""
    db.execute("DELETE FROM devices")
    names = Device._fields
    db.executemany(
        f"INSERT INTO devices ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
        [(*device[:-1], ",".join(device.links)) for device in devices],
    )
    set_meta(db, "cpu_slots", cpu_slots)


def load_devices(db: Database) -> tuple[Device, ...]:
    """Return the devices that the daemon published."""
    rows = db.execute(f"SELECT {', '.join(Device._fields)} FROM devices ORDER BY number")
    found = [dict(zip(Device._fields, row, strict=True)) for row in rows]
    return tuple(
        Device(**{**one, "links": tuple(filter(None, one["links"].split(",")))}) for one in found
    )
