package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is one classic-protocol group member with a connection of its own.
type member struct {
	c     *conn
	group string
	id    string
	gen   int32
	size  int // members of the generation, known to its leader only
}

// sessionMillis is long, so that no member is lost while it waits for its turn to be measured.
var sessionMillis int32 = 300_000

func newMember(group string) *member {
	c, err := dial(*bootstrap)
	check(err)
	return &member{c: c, group: group}
}

func (m *member) joinRequest() *kmsg.JoinGroupRequest {
	req := ver(kmsg.NewPtrJoinGroupRequest())
	req.Group, req.MemberID, req.ProtocolType = m.group, m.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = sessionMillis, 300_000
	p := kmsg.NewJoinGroupRequestProtocol()
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics = 1, []string{*topic}
	p.Name, p.Metadata = "range", meta.AppendTo(nil)
	req.Protocols = append(req.Protocols, p)
	return req
}

// join runs JoinGroup and SyncGroup until both succeed. The leader gives member i partition i.
func (m *member) join() error {
	isNew := false
	for {
		before := m.c.heard
		resp, err := m.c.call(m.joinRequest())
		if err != nil {
			return err
		}
		j := resp.(*kmsg.JoinGroupResponse)
		switch j.ErrorCode {
		case 0:
		case 79: // MEMBER_ID_REQUIRED
			m.id, isNew = j.MemberID, true
			continue
		case 25: // an id is forgotten when its group, still empty, expires before it is used: in Kafka too
			if !isNew {
				return fmt.Errorf("%s: %q has lost its seat; the answer before came at %s", m.group, m.id, before.Format(time.StampMilli))
			}
			m.id, isNew = "", false
			continue
		case 14, 15, 16, 27:
			time.Sleep(20 * time.Millisecond)
			continue
		default:
			return fmt.Errorf("%s: JoinGroup of %q: error %d; the answer before it came at %s", m.group, m.id, j.ErrorCode, before.Format(time.StampMilli))
		}
		m.id, m.gen, m.size = j.MemberID, j.Generation, len(j.Members)
		req := ver(kmsg.NewPtrSyncGroupRequest())
		req.Group, req.MemberID, req.Generation = m.group, m.id, m.gen
		req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
		for i, other := range j.Members {
			a := kmsg.NewConsumerMemberAssignment()
			t := kmsg.NewConsumerMemberAssignmentTopic()
			t.Topic, t.Partitions = *topic, []int32{int32(i)}
			a.Topics = append(a.Topics, t)
			ga := kmsg.NewSyncGroupRequestGroupAssignment()
			ga.MemberID, ga.MemberAssignment = other.MemberID, a.AppendTo(nil)
			req.GroupAssignment = append(req.GroupAssignment, ga)
		}
		resp, err = m.c.call(req)
		if err != nil {
			return err
		}
		switch code := resp.(*kmsg.SyncGroupResponse).ErrorCode; code {
		case 0:
			return nil
		case 27, 22: // the next rebalance has begun
			continue
		default:
			return fmt.Errorf("%s: SyncGroup of %q: error %d", m.group, m.id, code)
		}
	}
}

func (m *member) heartbeatRequest() *kmsg.HeartbeatRequest {
	req := ver(kmsg.NewPtrHeartbeatRequest())
	req.Group, req.MemberID, req.Generation = m.group, m.id, m.gen
	return req
}

func (m *member) heartbeat() int16 {
	resp, err := m.c.call(m.heartbeatRequest())
	check(err)
	return resp.(*kmsg.HeartbeatResponse).ErrorCode
}

func (m *member) leave() {
	req := ver(kmsg.NewPtrLeaveGroupRequest())
	req.Group, req.MemberID = m.group, m.id
	lm := kmsg.NewLeaveGroupRequestMember()
	lm.MemberID = m.id
	req.Members = append(req.Members, lm)
	_, err := m.c.call(req)
	check(err)
	m.c.close()
}

// farewell takes all members of one group out with one request: a group left to its session timeouts would disturb
// whatever is measured five minutes later.
func farewell(all []*member) {
	req := ver(kmsg.NewPtrLeaveGroupRequest())
	req.Group = all[0].group
	for _, m := range all {
		lm := kmsg.NewLeaveGroupRequestMember()
		lm.MemberID = m.id
		req.Members = append(req.Members, lm)
	}
	if req.Version >= 3 {
		_, err := all[0].c.call(req)
		check(err)
	}
	for _, m := range all {
		m.c.close()
	}
}

// form joins n new members and returns once all are in one generation.
func form(group string, n int) []*member {
	all := make([]*member, n)
	for i := range all {
		all[i] = newMember(group)
	}
	var mu sync.Mutex
	gens, stable := make([]int32, n), false
	pause := max(20*time.Millisecond, time.Duration(n)*200*time.Microsecond)
	each(n, func(i int) {
		for first := true; ; first = false {
			if first || all[i].heartbeat() != 0 {
				check(all[i].join())
				mu.Lock()
				gens[i], stable = all[i].gen, true
				for _, g := range gens {
					stable = stable && g == all[i].gen
				}
				mu.Unlock()
			}
			mu.Lock()
			done := stable
			mu.Unlock()
			if done {
				return
			}
			time.Sleep(pause)
		}
	})
	return all
}

// each runs f(0..n-1), every call in a goroutine of its own, and waits.
func each(n int, f func(int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// rejoinAll waits until the first member is told of the rebalance, then has all
// rejoin at once, as if every heartbeat had come due; so the coordinator is
// timed and not the heartbeat interval.
func rejoinAll(all []*member) {
	for all[0].heartbeat() == 0 {
	}
	each(len(all), func(i int) { check(all[i].join()) })
}

// grow times one member joining a stable group: from its first JoinGroup to the
// last SyncGroup answer of all. shrink has it leave again.
// Its connection is open already: a short accept queue may cost a one-second SYN retry.
func grow(all []*member, newcomer *member) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() { check(newcomer.join()) })
	rejoinAll(all)
	wg.Wait()
	took := time.Since(start)
	for _, m := range all {
		if m.gen != newcomer.gen {
			check(fmt.Errorf("%s: generations %d and %d", m.group, m.gen, newcomer.gen))
		}
	}
	return took
}

func shrink(all []*member, leaver *member) time.Duration {
	start := time.Now()
	leaver.leave()
	rejoinAll(all)
	return time.Since(start)
}

func ms(d time.Duration) float64 { return round(float64(d) / 1e6) }

func rebalance([]string) {
	prepare(0)
	group := fmt.Sprintf("rebalance-%d-%d", *members, time.Now().UnixNano())
	start := time.Now()
	all := form(group, *members)
	formed := time.Since(start)
	for range *repeat {
		u := usageNow()
		newcomer := newMember(group)
		grew := grow(all, newcomer)
		shrank := shrink(all, newcomer)
		r := result{"cmd": "rebalance", "members": *members, "form_ms": ms(formed), "join_ms": ms(grew), "leave_ms": ms(shrank)}
		u.since(r)
		r.print()
	}
	farewell(all)
}

// storm has one member join each of many stable groups at the same moment.
func storm([]string) {
	prepare(0)
	stamp := time.Now().UnixNano()
	all := make([][]*member, *groups)
	each(*groups, func(g int) { all[g] = form(fmt.Sprintf("storm-%d-%d", g, stamp), *members) })
	for range *repeat {
		u := usageNow()
		var mu sync.Mutex
		var h hist
		newcomers := make([]*member, *groups)
		for g := range newcomers {
			newcomers[g] = newMember(all[g][0].group)
		}
		start := time.Now()
		each(*groups, func(g int) {
			took := grow(all[g], newcomers[g])
			mu.Lock()
			h.add(took)
			mu.Unlock()
		})
		r := result{"cmd": "storm", "groups": *groups, "members": *members, "total_ms": ms(time.Since(start)),
			"group_p50_ms": round(h.at(.5) / 1e3), "group_p99_ms": round(h.at(.99) / 1e3)}
		u.since(r)
		r.print()
		each(*groups, func(g int) { shrink(all[g], newcomers[g]) })
	}
}
