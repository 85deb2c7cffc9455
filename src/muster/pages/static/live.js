'use strict';
// What the cluster says now, beside what the tables say. As of a past moment, and in a file, there is nothing of it.

(() => {
  const { h } = muster;
  const ASK_EVERY_MS = 15e3;
  let told = null, toldAt = 0, groups = new Map(), partitions = new Map();

  muster.live = {
    take: (live) => {
      if (live && live === told) return;
      [told, toldAt] = [live || null, performance.now()];
      groups = new Map(told && told.groups ? muster.rows(told.groups).map((each) => [each.group_id, each]) : []);
      partitions = new Map(told && told.partitions ? muster.rows(told.partitions).map((each) => [`${each.partition} ${each.topic ?? ''}`, each]) : []);
    },
    isThere: () => told !== null,
    isUp: () => told !== null && told.is_up,
    group: (id) => groups.get(id) || (told && told.group && told.group.group_id === id ? told.group : undefined),
    partition: (number, topic = '') => partitions.get(`${number} ${topic}`),
    // Groups that the cluster has and the tables have not: they began after the last run.
    others: (known) => [...groups.values()].filter((each) => !known.has(each.group_id)),
    // Text that follows what the cluster says: `what` finds the row, `text` makes something of it.
    cell: (what, text) => follows(() => {
      const found = told && told.is_up ? what() : undefined;
      if (found) return text(found);
      return h('span', { class: 'faint' }, told && told.is_up && told.is_whole ? 'gone' : 'unknown');
    }),
    bar: () => (told === null ? null : h('div', { class: 'live-bar', role: 'status' }, follows(barOf))),
  };

  function follows(make) {
    const element = h('span', { class: 'live' });
    element.update = () => element.replaceChildren(make());
    element.update();
    return element;
  }

  function barOf() {
    const age = told.age_ms === null ? null : told.age_ms + performance.now() - toldAt;
    const text = told.is_up ? `Now: what the cluster said ${muster.duration(age)} ago. ` : `Now: unknown${age === null ? '' : `, the last answer was ${muster.duration(age)} ago`}. `;
    return h('span', { class: told.is_up && !told.sentence ? '' : 'amiss' }, h('b', {}, told.is_up ? '● ' : '○ '), text, told.sentence || '');
  }

  muster.live.refresh = async () => {
    if (!told || !muster.source.live) return;
    const before = told, found = await muster.source.live();
    if (told !== before) return; // another page is shown by now
    const count = found.groups ? found.groups.rows.length : 0;
    muster.renewLive(found, count !== groups.size); // groups have come or gone
    update();
  };
  const update = (only = '') => document.querySelectorAll(`${only} .live`).forEach((each) => each.update());

  setInterval(() => { if (told && !document.hidden) update('.live-bar'); }, 1000);
  setInterval(() => { if (!document.hidden) muster.live.refresh(); }, ASK_EVERY_MS);
})();
