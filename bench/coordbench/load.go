package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func commitRequest(m *member, first, n int, offset int64) *kmsg.OffsetCommitRequest {
	req := ver(kmsg.NewPtrOffsetCommitRequest())
	req.Group, req.MemberID, req.Generation = m.group, m.id, m.gen
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = *topic
	t.Partitions = make([]kmsg.OffsetCommitRequestTopicPartition, n)
	for i := range t.Partitions {
		t.Partitions[i].Partition, t.Partitions[i].Offset = int32(first+i), offset
		t.Partitions[i].LeaderEpoch = -1
	}
	req.Topics = append(req.Topics, t)
	return req
}

func fetchRequest(group string, n int) *kmsg.OffsetFetchRequest {
	req := ver(kmsg.NewPtrOffsetFetchRequest())
	parts := make([]int32, n)
	for i := range parts {
		parts[i] = int32(i)
	}
	if req.Version < 8 {
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = *topic, parts
		req.Group, req.Topics = group, append(req.Topics, t)
		return req
	}
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = *topic, parts
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.Topics = group, append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	return req
}

// errorOf is the first error code anywhere in an answer.
func errorOf(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.OffsetCommitResponse:
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return p.ErrorCode
				}
			}
		}
	case *kmsg.OffsetFetchResponse:
		for _, g := range r.Groups {
			if g.ErrorCode != 0 {
				return g.ErrorCode
			}
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					if p.ErrorCode != 0 {
						return p.ErrorCode
					}
				}
			}
		}
		return r.ErrorCode
	}
	return 0
}

// checker decodes an answer only when its bytes differ from the last good one of
// its kind, so that checking every answer costs almost nothing.
type checker struct {
	good   map[int16][]byte
	errors map[int16]int
}

func newChecker() *checker { return &checker{map[int16][]byte{}, map[int16]int{}} }

func (k *checker) check(req kmsg.Request, body []byte) {
	if bytes.Equal(body, k.good[req.Key()]) {
		return
	}
	resp, err := decode(req, body)
	code := int16(-2)
	if err == nil {
		code = errorOf(resp)
	}
	if code != 0 {
		k.errors[code]++
		return
	}
	k.good[req.Key()] = append(k.good[req.Key()][:0], body...)
}

func mergeErrors(into map[string]int, from map[int16]int) {
	for code, n := range from {
		into[fmt.Sprint(code)] += n
	}
}

// closedLoop keeps --depth requests of one kind in flight on every connection.
func closedLoop(args []string) {
	kind := args[0]
	prepare(*partitions)
	stamp := time.Now().UnixNano()
	all := make([]*member, *conns)
	each(*conns, func(i int) {
		group := fmt.Sprintf("%s-%d-%d", kind, i, stamp)
		if kind == "heartbeat" || *joined {
			all[i] = form(group, 1)[0]
		} else {
			all[i] = newMember(group)
			all[i].gen = -1
		}
		for { // one commit, so that there is something to fetch, and the group is known to be loaded
			resp, err := all[i].c.call(commitRequest(all[i], 0, *partitions, 1))
			check(err)
			if code := errorOf(resp); code == 0 {
				return
			} else if code != 14 && code != 15 && code != 16 {
				check(fmt.Errorf("first commit: error %d", code))
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	request := func(m *member, n int) kmsg.Request {
		switch kind {
		case "commit":
			return commitRequest(m, 0, *partitions, int64(n))
		case "fetch":
			return fetchRequest(m.group, *partitions)
		}
		return m.heartbeatRequest()
	}
	for range *repeat {
		begin := time.Now().Add(seconds2(*warmup))
		end := begin.Add(seconds2(*seconds))
		hists, checkers := make([]hist, *conns), make([]*checker, *conns)
		var u usage
		timer := time.AfterFunc(time.Until(begin), func() { u = usageNow() })
		each(*conns, func(i int) {
			checkers[i] = newChecker()
			drive(all[i], request, begin, end, &hists[i], checkers[i])
		})
		timer.Stop()
		var h hist
		errors := map[string]int{}
		for i := range hists {
			h.merge(&hists[i])
			mergeErrors(errors, checkers[i].errors)
		}
		r := result{"cmd": kind, "conns": *conns, "depth": *depth, "partitions": *partitions, "joined": *joined,
			"seconds": *seconds, "requests": h.n, "rate": round(float64(h.n) / *seconds), "errors": errors}
		u.since(r.latency(&h))
		r.print()
	}
	for _, m := range all {
		if m.gen >= 0 {
			farewell([]*member{m})
		}
	}
}

// drive runs one connection until end; answers between begin and end are counted.
func drive(m *member, request func(*member, int) kmsg.Request, begin, end time.Time, h *hist, k *checker) {
	sent := make([]time.Time, *depth) // ring: answers come in order
	req := request(m, 0)
	for i := range sent {
		m.c.queue(request(m, i))
		sent[i] = time.Now()
	}
	check(m.c.flush())
	inFlight := *depth
	for n := *depth; inFlight > 0; n++ {
		body, err := m.c.read()
		check(err)
		now := time.Now()
		k.check(req, body)
		if now.After(begin) && now.Before(end) {
			h.add(now.Sub(sent[n%*depth]))
		}
		inFlight--
		if now.Before(end) {
			m.c.queue(request(m, n))
			sent[n%*depth] = now
			inFlight++
		}
		if !m.c.another() {
			check(m.c.flush())
		}
	}
}
