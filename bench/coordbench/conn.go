package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is one plain TCP connection. Requests are queued, flushed together, and
// answered in order, so any number may be in flight.
type conn struct {
	c    net.Conn
	r    *bufio.Reader
	out  []byte
	one  []byte
	in   []byte
	corr int32

	heard time.Time // the last answer to a call; a failure says how long ago that was
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("coordbench"))

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, r: newReader(c)}, nil
}

func (c *conn) close() { c.c.Close() }

func (c *conn) queue(req kmsg.Request) {
	c.corr++
	c.one = formatter.AppendRequest(c.one[:0], req, c.corr) // writes its length at the front of its buffer
	c.out = append(c.out, c.one...)
}

func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.c.Write(c.out)
	c.out = c.out[:0]
	return err
}

// read returns the next answer after its correlation id; valid until the next read.
func (c *conn) read() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n < 4 || n > 256<<20 {
		return nil, fmt.Errorf("answer of %d bytes", n)
	}
	if cap(c.in) < n {
		c.in = make([]byte, n)
	}
	c.in = c.in[:n]
	_, err := io.ReadFull(c.r, c.in)
	return c.in[4:], err
}

// another reports whether a whole further answer is already in the read buffer.
func (c *conn) another() bool {
	if c.r.Buffered() < 4 {
		return false
	}
	head, _ := c.r.Peek(4)
	return c.r.Buffered() >= 4+int(binary.BigEndian.Uint32(head))
}

func decode(req kmsg.Request, body []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && resp.Key() != 18 { // response header v1: skip its tags
		n, used := binary.Uvarint(body)
		body = body[used:]
		for ; n > 0; n-- {
			_, used = binary.Uvarint(body)
			body = body[used:]
			size, used := binary.Uvarint(body)
			body = body[used+int(size):]
		}
	}
	return resp, resp.ReadFrom(body)
}

func (c *conn) call(req kmsg.Request) (kmsg.Response, error) {
	c.queue(req)
	if err := c.flush(); err != nil {
		return nil, err
	}
	body, err := c.read()
	if err != nil {
		return nil, err
	}
	c.heard = time.Now()
	return decode(req, body)
}

// versions holds, per API key, the version spoken: the lower of ours and the server's.
var versions = map[int16]int16{8: 9, 9: 9, 10: 4, 11: 9, 12: 4, 13: 4, 14: 5, 19: 7, 3: 12, 42: 2, 47: 0}

func negotiate(addr string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.close()
	req := kmsg.NewPtrApiVersionsRequest()
	resp, err := c.call(req)
	if err != nil {
		return err
	}
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		if v, ok := versions[k.ApiKey]; ok && k.MaxVersion < v {
			versions[k.ApiKey] = k.MaxVersion
		}
	}
	return nil
}

func ver[R kmsg.Request](r R) R {
	r.SetVersion(versions[r.Key()])
	return r
}

func newReader(c net.Conn) *bufio.Reader { return bufio.NewReaderSize(c, 64<<10) }
