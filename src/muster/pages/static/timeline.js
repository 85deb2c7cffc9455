'use strict';
// The rebalances of a group: members as bars across time, lines where the group rebalanced, and why.

const RETURNED = 'static member returned'; // in the same generation: nothing stopped for it

muster.timeline = (content) => {
  const members = content.timeline.members, changes = muster.rows(content.timeline.rebalances);
  const rebalances = changes.filter((each) => each.cause !== RETURNED), returns = changes.length - rebalances.length;
  const from = content.since_ms, to = content.at_ms;
  const section = muster.h('section', { class: 'timeline' }, muster.h('h2', {}, 'Rebalances'));
  if (!members.length && !changes.length) {
    section.append(muster.h('p', { class: 'faint' }, 'Nobody was a member in this time, as far as records tell.'));
    return section;
  }
  const told = muster.h('p', { class: 'told', role: 'status' }, summary(rebalances, returns, members));
  const place = muster.h('div', { class: 'canvas' });
  section.append(told, place);
  if (content.timeline.left_out) section.append(muster.h('p', { class: 'faint' }, `${muster.number(content.timeline.left_out)} members that came earlier are not drawn.`));
  const draw = () => {
    const width = Math.max(place.clientWidth, 200), names = width > 640 ? 200 : 96, row = 22, top = 22, bottom = 18;
    const height = top + members.length * row + bottom;
    const x = (ms) => names + (Math.min(Math.max(ms, from), to) - from) / Math.max(to - from, 1) * (width - names - 4);
    const svg = muster.s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': summary(rebalances, returns, members) });
    const days = muster.timeTicks(from, to, Math.max(Math.floor((width - names) / 70), 2));
    for (const tick of days.ticks) {
      svg.append(muster.s('line', { class: 'grid', x1: x(tick), x2: x(tick), y1: top, y2: height - bottom }),
        muster.s('text', { class: 'tick', x: x(tick), y: height - 4, 'text-anchor': x(tick) > width - 30 ? 'end' : 'middle' }, days.text(tick)));
    }
    for (const each of rebalances) svg.append(mark(each, x(each.at_ms), top, height - bottom, told));
    members.forEach((member, number) => svg.append(...bars(member, number, x, top + number * row, row, names, to, told)));
    place.replaceChildren(svg);
  };
  muster.onResize(place, draw);
  section.append(list(changes, content.at_ms));
  return section;
};

function summary(rebalances, returns, members) {
  const left = members.filter((member) => member.bars[member.bars.length - 1].to_ms !== null).length;
  const causes = {};
  for (const each of rebalances) causes[each.cause || 'cause unknown'] = (causes[each.cause || 'cause unknown'] || 0) + 1;
  const why = Object.entries(causes).sort((a, b) => b[1] - a[1]).map(([cause, count]) => `${count} × ${cause}`).join(', ');
  const count = (number, word) => `${number} ${word}${number === 1 ? '' : 's'}`;
  return `${count(rebalances.length, 'rebalance')}${why ? ` (${why})` : ''}; ${returns ? `${count(returns, 'static member')} returned without one; ` : ''}${count(members.length, 'member')}, of which ${left} left.`;
}

function mark(each, x, top, bottom, told) {
  const text = `${muster.fullTime(each.at_ms)}: generation ${each.generation ?? '?'}, ${each.cause || 'cause unknown'}; ${each.members} members`;
  return muster.s('g', { class: 'rebalance', onpointerenter: () => { told.textContent = text; } }, muster.s('title', {}, text),
    muster.s('line', { x1: x, x2: x, y1: top - 6, y2: bottom }), muster.s('path', { d: `M${x - 4},${top - 12}h8l-4,6z` }));
}

function bars(member, number, x, y, row, names, to, told) {
  const name = member.client_id || member.member_id;
  const label = muster.s('text', { class: 'name', x: 0, y: y + row - 7 }, muster.s('title', {}, `${member.member_id} ${member.client_host || ''}`), clipped(name, names - 8, 6.6));
  return [label, ...member.bars.map((bar) => {
    const left = x(bar.from_ms), width = Math.max(x(bar.to_ms ?? to) - left, 2);
    const until = bar.to_ms === null ? 'until now' : `to ${muster.time(bar.to_ms)}`;
    const text = `${name}: ${bar.assignment || 'nothing assigned'}, from ${muster.time(bar.from_ms)} ${until}${bar.generation === null ? '' : `, since generation ${bar.generation}`}`;
    return muster.s('g', { class: `bar hue${number % 6}${bar.assignment ? '' : ' idle'}`, onpointerenter: () => { told.textContent = text; } },
      muster.s('title', {}, text), muster.s('rect', { x: left, y: y + 3, width, height: row - 6, rx: 2 }),
      width > 30 ? muster.s('text', { x: left + 4, y: y + row - 7 }, clipped(bar.assignment || 'idle', width - 8, 6.2)) : null);
  })];
}

function clipped(text, width, each) {
  const room = Math.floor(width / each);
  return text.length <= room ? text : `${text.slice(0, Math.max(room - 1, 0))}…`;
}

function list(rebalances, at) {
  if (!rebalances.length) return '';
  const people = (ids) => (ids && ids.length ? ids.map((id) => muster.h('div', { class: 'id' }, id)) : muster.NONE);
  const columns = [
    { title: 'When', cell: (each) => muster.ago(each.at_ms, at) },
    { title: 'Generation', number: true, cell: (each) => each.generation ?? muster.NONE },
    { title: 'Why', cell: (each) => (each.cause === RETURNED ? `no rebalance: ${RETURNED}` : each.cause) || muster.h('span', { class: 'faint' }, 'unknown') },
    { title: 'Members', number: true, cell: (each) => each.members },
    { title: 'Joined', wide: true, cell: (each) => people(each.joined) },
    { title: 'Left', wide: true, cell: (each) => people(each.left) },
    { title: 'Moved', number: true, wide: true, cell: (each) => muster.number(each.partitions_moved) },
    { title: 'Without commits', number: true, wide: true, cell: (each) => muster.duration(each.commit_gap_ms) },
  ];
  return muster.h('details', {}, muster.h('summary', {}, `All ${muster.number(rebalances.length)}, newest first`), muster.table(columns, rebalances));
}
