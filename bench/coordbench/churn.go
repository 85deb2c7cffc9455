package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// tally is what happened since the last printed line; every goroutine of the churn writes into it.
type tally struct {
	mu     sync.Mutex
	hists  map[string]*hist
	counts map[string]int
	errors map[string]int
}

func newTally() *tally {
	t := &tally{}
	t.reset()
	return t
}

func (t *tally) reset() {
	t.hists = map[string]*hist{"commit": {}, "heartbeat": {}, "fetch": {}, "rebalance": {}}
	t.counts, t.errors = map[string]int{}, map[string]int{}
}

func (t *tally) count(what string) {
	t.mu.Lock()
	t.counts[what]++
	t.mu.Unlock()
}

func (t *tally) took(what string, d time.Duration) {
	t.mu.Lock()
	t.hists[what].add(d)
	t.counts[what]++
	t.mu.Unlock()
}

func (t *tally) failed(what string, code int16) {
	if code != 0 {
		t.mu.Lock()
		t.errors[fmt.Sprintf("%s %d", what, code)]++
		t.mu.Unlock()
	}
}

// call times one request, alone in flight on its connection.
func (t *tally) call(what string, c *conn, req kmsg.Request) {
	start := time.Now()
	resp, err := c.call(req)
	check(err)
	t.took(what, time.Since(start))
	t.failed(what, errorOf(resp))
}

// line turns the tally into a result and begins a new one.
func (t *tally) line() result {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := result{"cmd": "churn", "errors": t.errors}
	for name, h := range t.hists {
		r[name+"_p50_us"], r[name+"_p99_us"], r[name+"_max_us"] = round(h.at(.5)), round(h.at(.99)), round(float64(h.max)/1e3)
	}
	for name, n := range t.counts {
		r[name+"_count"] = n
	}
	t.reset()
	return r
}

// churn keeps a server busy for --seconds as a long day does, and prints a line every --interval seconds.
//
// Half of the work is steady: --conns members, each alone in its group, send --rate requests a second between them
// (heartbeats, commits, fetches). The other half are --lives short-lived groups a second: they join, commit, rebalance
// and end in every way a group can end. Connections that say nothing, or hang up in mid-request, come and go as well.
func churn([]string) {
	prepare(*partitions)
	sessionMillis = 30_000
	t, stamp := newTally(), time.Now().UnixNano()
	end := time.Now().Add(seconds2(*seconds))
	var wg sync.WaitGroup
	for i := range *conns {
		wg.Go(func() { steady(t, fmt.Sprintf("steady-%d-%d", i, stamp), end) })
	}
	for i := range livesAtOnce {
		wg.Go(func() {
			for n := i; ; n += livesAtOnce {
				// Never late on purpose: a slow server gets fewer lives, not a crowd of them.
				time.Sleep(seconds2(livesAtOnce / *lives * (0.5 + rand.Float64())))
				if time.Now().After(end) {
					return
				}
				life(t, fmt.Sprintf("life-%d-%d", n, stamp), n)
			}
		})
	}
	for range int(*seconds / *interval) {
		u := usageNow()
		time.Sleep(seconds2(*interval))
		r := t.line()
		u.since(r)
		r.print()
	}
	wg.Wait()
}

const livesAtOnce = 4

func steady(t *tally, group string, end time.Time) {
	m := form(group, 1)[0]
	pause := seconds2(float64(*conns) / *rate)
	next := time.Now().Add(time.Duration(rand.Int64N(int64(pause))))
	for n := 0; next.Before(end); n++ {
		time.Sleep(time.Until(next))
		switch n % 10 {
		case 0, 2, 4, 6, 8:
			t.call("commit", m.c, commitRequest(m, n%*partitions, 1, int64(n)))
		case 9:
			t.call("fetch", m.c, fetchRequest(group, *partitions))
		default:
			t.call("heartbeat", m.c, m.heartbeatRequest())
		}
		next = next.Add(pause)
		if late := time.Since(next); late > 0 { // rather fewer requests than a burst of them
			next = next.Add(late)
		}
	}
	m.leave()
}

// life is one group from its first member to its end; which end depends on n.
func life(t *tally, group string, n int) {
	t.count("live")
	strangers(n)
	if n%6 == 5 { // a consumer that assigns its partitions itself; the offsets are left to expire
		simple := newMember(group)
		simple.gen = -1
		for i := range 5 {
			t.call("commit", simple.c, commitRequest(simple, 0, *partitions, int64(i)))
		}
		simple.c.close()
		return
	}
	all := form(group, 1+n%3)
	newcomer := newMember(group)
	t.took("rebalance", grow(all, newcomer))
	all = append(all, newcomer)
	for i, m := range all {
		t.call("commit", m.c, commitRequest(m, i%*partitions, 1, int64(n)))
		t.call("heartbeat", m.c, m.heartbeatRequest())
	}
	t.took("rebalance", shrink(all[1:], all[0]))
	all = all[1:]
	t.call("fetch", all[0].c, fetchRequest(group, *partitions))
	if n%6 == 4 { // nobody says goodbye: their seats are lost with their sessions
		for _, m := range all {
			t.count("abandoned")
			m.c.close()
		}
		return
	}
	last := newMember(group)
	defer last.c.close()
	for _, m := range all {
		m.leave()
	}
	switch n % 6 {
	case 0, 1:
		t.failed("delete group", deleteGroup(last.c, group))
	case 2:
		t.failed("delete offsets", deleteOffsets(last.c, group))
	}
}

// strangers are connections that only say hello, say nothing, or break off in the middle of a word.
func strangers(n int) {
	c, err := dial(*bootstrap)
	check(err)
	defer c.close()
	switch n % 3 {
	case 0:
		_, err = c.call(kmsg.NewPtrApiVersionsRequest())
	case 1:
		_, err = c.c.Write([]byte{0, 0, 1, 0, 0, 8, 0, 9}) // the start of a commit of 256 bytes
	}
	check(err)
}

func deleteGroup(c *conn, group string) int16 {
	req := ver(kmsg.NewPtrDeleteGroupsRequest())
	req.Groups = []string{group}
	resp, err := c.call(req)
	check(err)
	return resp.(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode
}

func deleteOffsets(c *conn, group string) int16 {
	req := ver(kmsg.NewPtrOffsetDeleteRequest())
	req.Group = group
	t := kmsg.NewOffsetDeleteRequestTopic()
	t.Topic = *topic
	for i := range *partitions {
		p := kmsg.NewOffsetDeleteRequestTopicPartition()
		p.Partition = int32(i)
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := c.call(req)
	check(err)
	r := resp.(*kmsg.OffsetDeleteResponse)
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return p.ErrorCode
			}
		}
	}
	return r.ErrorCode
}
