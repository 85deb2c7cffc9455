#!/usr/bin/env python3
"""Write a large, valid `__consumer_offsets` log made of segment files, fast and repeatable.

    python make_large.py --records 5000000 --seed 1 --out DIR

Needs numpy only. The bytes are Kafka's own format: record batch v2, CRC-32C, zigzag varints, 1-50 records per batch,
several segments per partition. Output: DIR/__consumer_offsets-P/<base offset>.log, DIR/expected.json (counters) and
DIR/state.tsv.gz (the committed offset of every key after the last record, transactions resolved).

What it writes, by batches: offset commits of one consumer's partitions (value version --value-version), transactional
offset commits followed by a COMMIT or ABORT marker (--txn-pct), classic group metadata with members (--group-pct) and,
by records, offset tombstones (--tombstone-pct). Same arguments and numpy release -> same bytes.

How it is fast: every (group, consumer) has a batch template in which only 8-byte fields vary, so thousands of batches
are filled at once, and the CRC is linear: crc(template with fields) = crc(template) xor one table entry per field byte.
"""

import argparse
import collections
import ctypes
import gzip
import json
import multiprocessing
import os
import struct
import sys
import time

import numpy as np

POLY = 0x82F63B78
T = np.zeros(256, np.uint32)
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = (_c >> 1) ^ (POLY if _c & 1 else 0)
    T[_i] = _c


class Zeros:
    """z[d][v]: what byte v with d bytes after it adds to a CRC-32C (the linear part); init[n]: the start value's part."""

    def __init__(self):
        self.z, self.init = T[None, :].copy(), np.array([0xFFFFFFFF], np.uint32)

    def upto(self, n):
        if n >= len(self.z):
            n = max(n, 2 * len(self.z))
            rows, cur, starts, c = [], self.z[-1], [], self.init[-1]
            for _ in range(n + 1 - len(self.z)):
                cur = T[cur & 0xFF] ^ (cur >> 8)
                rows.append(cur)
                c = T[c & 0xFF] ^ (c >> 8)
                starts.append(c)
            self.z = np.vstack([self.z, np.array(rows, np.uint32)])
            self.init = np.append(self.init, np.array(starts, np.uint32))
        return self.z


Z = Zeros()


def crc32c(b):
    """b: uint8 array"""
    n = len(b)
    z = Z.upto(n)
    return np.bitwise_xor.reduce(z[np.arange(n - 1, -1, -1), b]) ^ Z.init[n] ^ np.uint32(0xFFFFFFFF)


def varint(n):
    u = (n << 1) if n >= 0 else ((-n << 1) - 1)
    o = bytearray()
    while u > 0x7F:
        o.append((u & 0x7F) | 0x80)
        u >>= 7
    o.append(u)
    return bytes(o)


def uvarint(u):
    o = bytearray()
    while u > 0x7F:
        o.append((u & 0x7F) | 0x80)
        u >>= 7
    o.append(u)
    return bytes(o)


def s16(s):
    b = s.encode()
    return struct.pack(">h", len(b)) + b


def java_hash(s):
    h = 0
    b = s.encode("utf-16-be")
    for i in range(0, len(b), 2):
        h = (31 * h + (b[i] << 8 | b[i + 1])) & 0xFFFFFFFF
    h = h - (1 << 32) if h >> 31 else h
    return 0 if h == -(1 << 31) else abs(h)


class Template:
    """One batch with holes: timestamps (same value everywhere), offsets (one per record), one optional int32."""

    def __init__(self, recs, pid=-1, epoch=-1, seq=0, attrs=0, keys=None, kind="commit", leader_epoch=0):
        """recs: list of (key, value or None, [(hole kind, position inside value)])"""
        body, ts, offs, gens = bytearray(), [27, 35], [], []
        for i, (k, v, holes) in enumerate(recs):
            r = (
                b"\0"
                + varint(0)
                + varint(i)
                + varint(len(k))
                + k
                + (varint(-1) if v is None else varint(len(v)) + v)
                + varint(0)
            )
            ln = varint(len(r))
            if v is not None:
                vpos = 61 + len(body) + len(ln) + len(r) - 1 - len(v)
                for h, p in holes:
                    (ts if h == "ts" else offs if h == "off" else gens).append(vpos + p)
            body += ln + r
        L = 61 + len(body)
        head = struct.pack(
            ">qiibIhiqqqhii", 0, L - 12, leader_epoch, 2, 0, attrs, len(recs) - 1, 0, 0, pid, epoch, seq, len(recs)
        )
        self.base = np.frombuffer(head + bytes(body), np.uint8).copy()
        self.L, self.k, self.kind, self.keys = L, len(recs), kind, keys
        self.ts, self.offs, self.gens, self.noff = ts, offs, gens, len(offs)
        self.cur, self.gen, self.tstab = None, 0, None

    def tables(self):
        L, z, eight = self.L, Z.upto(self.L), np.arange(8)
        self.crc0 = crc32c(self.base[21:])
        self.tscols = (np.array(self.ts)[:, None] + eight).reshape(-1)
        self.tstab = np.bitwise_xor.reduce(z[L - 1 - self.tscols].reshape(-1, 8, 256), 0)
        self.nts = len(self.ts)
        if self.offs:
            self.offcols = (np.array(self.offs)[:, None] + eight).reshape(-1)
            self.offtab = z[L - 1 - self.offcols].reshape(-1, 8, 256)[:, 2:]  # the top two bytes are always zero
        if self.gens:
            self.gentab = z[L - 1 - (self.gens[0] + np.arange(4))]

    def make(self, ts, rng, rows):
        """fill `rows` (len(ts) batches); returns the committed offsets, one row per batch, or None"""
        if self.tstab is None:
            self.tables()
        M = len(ts)
        rows[:] = self.base
        tb = ts.astype(">i8").view(np.uint8).reshape(M, 8)
        crc = np.full(M, self.crc0, np.uint32)
        for b in range(1, 8):
            crc ^= self.tstab[b][tb[:, b]]
        rows[:, self.tscols] = np.tile(tb, self.nts)
        last = None
        if self.noff:
            inc = rng.integers(0, 400, (M, self.noff), dtype=np.int64)
            if self.cur is None:
                self.cur = rng.integers(0, 2_000_000, self.noff, dtype=np.int64)
            o = self.cur + np.cumsum(inc, 0)
            self.cur = o[-1]
            ob = o.astype(">i8").view(np.uint8).reshape(M, self.noff, 8)
            j = np.arange(self.noff)[:, None]
            b = np.arange(6)[None, :]
            crc ^= np.bitwise_xor.reduce(self.offtab[j, b, ob[:, :, 2:]].reshape(M, -1), 1)
            rows[:, self.offcols] = ob.reshape(M, -1)
            last = o
        if self.gens:
            g = self.gen + 1 + np.arange(M, dtype=np.int64)
            self.gen = int(g[-1])
            gb = g.astype(">i4").view(np.uint8).reshape(M, 4)
            for b in range(4):
                crc ^= self.gentab[b][gb[:, b]]
            rows[:, self.gens[0] : self.gens[0] + 4] = gb
        rows[:, 17:21] = crc.astype(">u4").view(np.uint8).reshape(M, 4)
        return last


def offset_value(version, meta, topic_id):
    """bytes and holes of an offset-commit value"""
    m = meta.encode()
    q = b"\0" * 8
    if version == 4:
        head = struct.pack(">h", 4) + q + struct.pack(">i", 0) + uvarint(len(m) + 1) + m
        return head + q + b"\x01\x00\x10" + topic_id, [("off", 2), ("ts", len(head))]
    head = struct.pack(">h", version) + q + (struct.pack(">i", 0) if version == 3 else b"") + s16(meta)
    return head + q + (struct.pack(">q", -1) if version == 1 else b""), [("off", 2), ("ts", len(head))]


def group_value(members, protocol, topic, parts):
    sub = (
        struct.pack(">hi", 3, 1)
        + s16(topic)
        + struct.pack(">i", -1)
        + struct.pack(">i", 0)
        + struct.pack(">i", -1)
        + struct.pack(">h", -1)
    )
    head = struct.pack(">h", 3) + s16("consumer")
    gen = len(head)
    head += b"\0\0\0\0" + s16(protocol) + s16(members[0])
    ts = len(head)
    v = head + b"\0" * 8 + struct.pack(">i", len(members))
    for i, m in enumerate(members):
        mine = parts[i :: len(members)]
        asg = (
            struct.pack(">hi", 3, 1)
            + s16(topic)
            + struct.pack(">i", len(mine))
            + b"".join(struct.pack(">i", p) for p in mine)
            + struct.pack(">i", -1)
        )
        v += (
            s16(m)
            + struct.pack(">h", -1)
            + s16(m.rsplit("-", 5)[0])
            + s16(f"/10.{i}.7.{i + 9}")
            + struct.pack(">ii", 300000, 45000)
        )
        v += struct.pack(">i", len(sub)) + sub + struct.pack(">i", len(asg)) + asg
    return v, [("gen", gen), ("ts", ts)]


Written = collections.namedtuple("Written", "n counts base state")
_SCRATCH = np.empty(0, np.uint8)


def scratch(n):
    """one buffer for all chunks, so that its pages are touched once"""
    global _SCRATCH
    if len(_SCRATCH) < n:
        _SCRATCH = np.empty(n + n // 8, np.uint8)
    return _SCRATCH[:n]


class Partition:
    """All templates of the groups that hash to one partition of the topic, and the writer of its segments."""

    def __init__(self, n, groups, args, rng):
        self.n, self.args = n, args
        self.commit, self.weights, self.tomb, self.meta, self.txn, self.commitm, self.abortm = (
            [],
            [],
            [],
            [],
            [],
            [],
            [],
        )
        for g in groups:
            for topic, parts, members, metas, tid, w in g["reads"]:
                for m in range(members):
                    mine = list(range(m, parts, members))[:50]
                    key = lambda p: struct.pack(">h", 1) + s16(g["name"]) + s16(topic) + struct.pack(">i", p)
                    ks = [(g["name"], topic, p) for p in mine]
                    val, holes = offset_value(args.value_version, metas, tid)
                    self.commit.append(Template([(key(p), val, holes) for p in mine], keys=ks))
                    self.weights.append(w)
                    self.tomb.append(Template([(key(p), None, ()) for p in mine], keys=ks, kind="tombstone", seq=0))
                    pid = 1000 + g["id"] * 8 + m
                    self.txn.append(
                        Template(
                            [(key(p), val, holes) for p in mine], pid=pid, epoch=0, attrs=0x10, keys=ks, kind="txn"
                        )
                    )
                    for marker, l in ((1, self.commitm), (0, self.abortm)):
                        l.append(
                            Template(
                                [(struct.pack(">hh", 0, marker), struct.pack(">hi", 0, 0), ())],
                                pid=pid,
                                epoch=0,
                                seq=-1,
                                attrs=0x30,
                                kind="marker",
                            )
                        )
            topic, parts, members = g["reads"][0][:3]
            v, holes = group_value(
                [f"consumer-{g['name']}-{i}-{g['uuid']}" for i in range(members)], "range", topic, list(range(parts))
            )
            self.meta.append(Template([(struct.pack(">h", 2) + s16(g["name"]), v, holes)], kind="group"))
        # the record that tops a partition up to the exact count
        g = groups[0]
        topic = g["reads"][0][0]
        val, holes = offset_value(args.value_version, "", g["reads"][0][4])
        self.single = Template(
            [(struct.pack(">h", 1) + s16(g["name"]) + s16(topic) + struct.pack(">i", 0), val, holes)],
            keys=[(g["name"], topic, 0)],
        )
        self.all = self.commit + self.tomb + self.txn + self.commitm + self.abortm + self.meta + [self.single]
        self.k = np.array([t.k for t in self.all])
        self.len = np.array([t.L for t in self.all])
        self.weights = np.array(self.weights) / sum(self.weights)
        self.state, self.base, self.file, self.size = {}, 0, None, 0
        self.dir = os.path.join(args.out, f"__consumer_offsets-{n}")
        os.makedirs(self.dir, exist_ok=True)
        self.counts = {
            "records": 0,
            "batches": 0,
            "segments": 0,
            "bytes": 0,
            "commit": 0,
            "tombstone": 0,
            "txn": 0,
            "marker": 0,
            "group": 0,
        }

    def sequence(self, want, rng):
        """template numbers, in log order, whose record counts add up to exactly `want`"""
        n, a = len(self.commit), self.args
        mean = float((self.weights * self.k[:n]).sum())
        B = max(16, int(want / mean * 1.05) + 16)
        t = rng.choice(n, B, p=self.weights)
        u = rng.random(B)
        tomb = u < a.tombstone_pct / 100
        txn = (u >= 0.5) & (u < 0.5 + a.txn_pct / 200) if a.txn_pct <= 100 else u >= 0
        grp = (u > 1 - a.group_pct / 100) & ~txn
        t = np.where(tomb, t + n, np.where(txn, t + 2 * n, t))
        t[grp] = 5 * n + rng.integers(0, len(self.meta), int(grp.sum()))
        at = np.flatnonzero(txn)
        if len(at):
            mark = np.where(rng.random(len(at)) < 0.85, 3 * n, 4 * n) + (t[at] - 2 * n)
            t = np.insert(t, at + 1, mark)
        c = np.cumsum(self.k[t])
        stop = int(np.searchsorted(c, want, side="right"))
        if stop and 2 * n <= t[stop - 1] < 3 * n:  # never cut between a transaction and its marker
            stop -= 1
        have = int(c[stop - 1]) if stop else 0
        return np.concatenate([t[:stop], np.full(want - have, len(self.all) - 1)])

    def write(self, want, ts0, span, rng):
        t = self.sequence(want, rng)
        B, n = len(t), len(self.commit)
        step = rng.exponential(1.0, B)
        ts = (ts0 + np.cumsum(step) * (span / max(step.sum(), 1e-9))).astype(np.int64)
        k = self.k[t]
        gaps = (
            (rng.random(B) < self.args.gap_pct / 100) * rng.integers(1, 500, B)
            if self.args.gap_pct
            else np.zeros(B, np.int64)
        )
        bases = self.base + np.cumsum(k + gaps) - k
        order = np.argsort(t, kind="stable")
        ids, first = np.unique(t[order], return_index=True)
        ends = np.append(first[1:], B)
        lens = self.len[t]
        starts = np.empty(B, np.int64)
        pos, newest = 0, {}
        flat = scratch(int(lens.sum()))
        for tid, f, e in zip(ids, first, ends):
            at = order[f:e]
            tpl = self.all[tid]
            rows = flat[pos : pos + len(at) * tpl.L].reshape(-1, tpl.L)
            last = tpl.make(ts[at], rng, rows)
            rows[:, 0:8] = bases[at].astype(">i8").view(np.uint8).reshape(-1, 8)
            starts[at] = pos + np.arange(len(at)) * tpl.L
            pos += rows.size
            self.counts[tpl.kind] += tpl.k * len(at)
            if tpl.kind in ("commit", "tombstone", "txn"):
                i = len(at) - 1
                if tpl.kind == "txn":  # the newest one whose marker says COMMIT
                    ok = np.flatnonzero((t[at + 1] >= 3 * n) & (t[at + 1] < 4 * n))
                    if not len(ok):
                        continue
                    i = int(ok[-1])
                b = int(at[i])
                for j, key in enumerate(tpl.keys):
                    # a transactional commit counts from where it stands in the log; its marker follows at once
                    if key not in newest or newest[key][0] < b:
                        newest[key] = (b, None if tpl.kind == "tombstone" else (int(last[i, j]), int(ts[b])))
        for key, (_, v) in newest.items():
            if v is None:
                self.state.pop(key, None)
            else:
                self.state[key] = v
        mv = memoryview(flat)
        st, en = starts.tolist(), (starts + lens).tolist()
        i = 0
        cum = np.cumsum(lens)
        while i < B:
            if self.file is None:
                self.file = open(os.path.join(self.dir, f"{int(bases[i]):020d}.log"), "wb", buffering=0)
                self.size, self.counts["segments"] = 0, self.counts["segments"] + 1
            done = int(cum[i - 1]) if i else 0
            j = int(np.searchsorted(cum, done + self.args.segment_bytes - self.size, side="right"))
            j = min(max(j, i + (1 if self.size == 0 else 0)), B)
            if j > i:
                for q in range(i, j, 20000):
                    r = min(q + 20000, j)
                    self.file.write(b"".join([mv[a:b] for a, b in zip(st[q:r], en[q:r])]))
                self.size += int(cum[j - 1]) - done
                i = j
            if i < B:
                self.file.close()
                self.file = None
        self.base = int(bases[-1] + k[-1])
        self.counts["records"] += int(k.sum())
        self.counts["batches"] += B
        self.counts["bytes"] += int(cum[-1])


def universe(a, rng):
    teams = ["billing", "search", "fraud", "mail", "checkout", "metrics", "audit", "stream", "ads", "geo"]
    what = ["worker", "indexer", "sink", "enricher", "aggregator", "replicator", "scorer"]
    topics = []
    for i in range(a.topics):
        name = f"{teams[int(rng.integers(10))]}.{['events', 'commands', 'changelog', 'raw', 'v2'][int(rng.integers(5))]}.{i}"
        parts = int(rng.choice([1, 2, 3, 6, 12, 24, 50], p=[0.15, 0.1, 0.2, 0.2, 0.2, 0.1, 0.05]))
        topics.append((name, min(parts, a.topic_partitions) if a.topic_partitions else parts, rng.bytes(16)))
    groups = []
    for i in range(a.groups):
        name = f"{teams[int(rng.integers(10))]}-{what[int(rng.integers(7))]}-{i}"
        reads = []
        for _ in range(int(rng.choice([1, 2, 4], p=[0.7, 0.2, 0.1]))):
            tn, parts, tid = topics[int(rng.integers(len(topics)))]
            if any(r[0] == tn for r in reads):
                continue
            members = int(rng.integers(1, min(parts, 6) + 1))
            meta = "" if rng.random() < 0.8 else f"host-{int(rng.integers(99)):02d}"
            reads.append((tn, parts, members, meta, tid, float(rng.pareto(1.2) + 0.05)))
        groups.append(
            {
                "name": name,
                "id": i,
                "reads": reads,
                "uuid": "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}".format(
                    *tuple(int(x) for x in rng.integers(0, [2**32, 2**16, 2**12, 2**12, 2**48]))
                ),
            }
        )
    return groups


def partition(work):
    """write one partition of the topic; what comes back is its counters and final state"""
    n, groups, want, a = work
    keep_memory()
    rng = np.random.default_rng([a.seed, n])
    P = Partition(n, groups, a, rng)
    done, chunk = 0, 1_000_000
    while done < want:
        c = min(chunk, want - done)
        span = a.days * 86_400_000 / want
        P.write(c, a.start_ms + int(done * span), c * span, rng)
        done += c
    if P.file:
        P.file.close()
    return Written(n, P.counts, P.base, P.state)


def keep_memory():
    """glibc: keep freed memory instead of faulting fresh pages in for every array"""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD
    except (OSError, AttributeError):
        pass


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--records", type=int, required=True)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", required=True)
    p.add_argument(
        "--partitions", type=int, default=8, help="partitions of __consumer_offsets (default 8; Kafka's default is 50)"
    )
    p.add_argument("--groups", type=int, default=400)
    p.add_argument("--topics", type=int, default=120)
    p.add_argument(
        "--topic-partitions", type=int, default=0, help="upper bound of partitions per topic (default: up to 50)"
    )
    p.add_argument("--tombstone-pct", type=float, default=1.0)
    p.add_argument("--txn-pct", type=float, default=2.0)
    p.add_argument("--group-pct", type=float, default=0.5)
    p.add_argument(
        "--gap-pct", type=float, default=0.0, help="batches preceded by a hole in the offsets, as after compaction"
    )
    p.add_argument("--value-version", type=int, choices=(0, 1, 2, 3, 4), default=3)
    p.add_argument("--segment-bytes", type=int, default=33554432, help="default 32 MiB; Kafka's default is 104857600")
    p.add_argument("--start-ms", type=int, default=1_760_000_000_000)
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (the bytes do not depend on it)")
    p.add_argument("--days", type=float, default=7.0)
    a = p.parse_args()
    t = time.time()
    rng = np.random.default_rng(a.seed)
    os.makedirs(a.out, exist_ok=True)
    by = {}
    for g in universe(a, rng):
        by.setdefault(java_hash(g["name"]) % a.partitions, []).append(g)
    weight = {n: sum(r[5] * r[1] for g in gs for r in g["reads"]) for n, gs in sorted(by.items())}
    total, left, work = sum(weight.values()), a.records, []
    for i, n in enumerate(sorted(by)):
        want = left if i == len(by) - 1 else min(left, int(a.records * weight[n] / total))
        left -= want
        work.append((n, by[n], want, a))
    if a.jobs > 1 and len(work) > 1 and a.records > 500_000:
        with multiprocessing.Pool(min(a.jobs, len(work))) as pool:
            parts = sorted(pool.imap_unordered(partition, sorted(work, key=lambda w: -w[2])), key=lambda p: p.n)
    else:
        parts = [partition(w) for w in work]
    t2 = time.time()
    with gzip.GzipFile(os.path.join(a.out, "state.tsv.gz"), "wb", compresslevel=6, mtime=0) as f:
        f.write(b"offsets_partition\tgroup\ttopic\tpartition\toffset\tcommit_timestamp\n")
        for P in parts:
            f.write(
                "".join(
                    f"{P.n}\t{g}\t{tp}\t{q}\t{o}\t{ts}\n" for (g, tp, q), (o, ts) in sorted(P.state.items())
                ).encode()
            )
    tot = {k: sum(P.counts[k] for P in parts) for k in parts[0].counts}
    exp = {
        "arguments": {k: v for k, v in vars(a).items() if k not in ("out", "jobs")},
        "total": tot,
        "keys_with_an_offset": sum(len(P.state) for P in parts),
        "partitions": {str(P.n): {**P.counts, "next_offset": P.base} for P in parts},
    }
    with open(os.path.join(a.out, "expected.json"), "w") as f:
        json.dump(exp, f, indent=1)
        f.write("\n")
    print(
        f"{tot['records']} records, {tot['batches']} batches, {tot['segments']} segments, {tot['bytes'] / 1e6:.1f} MB in {t2 - t:.1f} s ({tot['records'] / (t2 - t) / 1e6:.2f} M records/s)",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
