'use strict';
// What holds of all pages: the top with the time slider, going from page to page, the keyboard, light and dark.

(() => {
  const { h } = muster;
  let content = JSON.parse(document.getElementById('content').textContent);
  let route = muster.source.route();
  let loading = 0, asking = new AbortController();
  let head = null; // of the last page that had one: an error has none
  let tick = () => {}; // how long ago the last look was grows while a page is open

  muster.at = () => route.params.at || '';
  muster.whileShown = () => asking.signal; // of what is asked for a page that another one takes the place of

  const RENEW_EVERY_MS = 10e3, TICK_MS = 5e3, OLDER_MS = 60e3, OLD_MS = 3600e3;
  const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

  // Going

  async function show(next, how) {
    const mine = ++loading;
    route = next;
    if (how === 'push') history.pushState(null, '', muster.source.href(route));
    if (how === 'replace') history.replaceState(null, '', muster.source.href(route));
    asking.abort();
    asking = new AbortController();
    document.body.setAttribute('aria-busy', 'true');
    // Findings of the past take seconds each: a slider that is still moving does not ask for all that it passes.
    if (how === 'replace' && route.page === 'findings') await pause(LATER_MS);
    if (mine !== loading) return;
    const found = await muster.source.load(route, asking.signal);
    if (mine !== loading) return;
    document.body.removeAttribute('aria-busy');
    content = found;
    draw();
    if (how === 'push') { scrollTo(0, 0); document.getElementById('main').focus({ preventScroll: true }); }
  }
  muster.go = (next) => show(next, 'push');
  muster.replace = (params) => {
    const next = { page: route.page, params: { ...route.params, ...params } };
    if ('range' in params) { show(next, 'replace'); return; }
    route = next;
    muster.remember(route);
    draw();
  };
  muster.remember = (one) => history.replaceState(null, '', muster.source.href(one));
  muster.setMoment = (ms) => {
    const run = head.run, at = ms === null || ms >= run.last_ms ? '' : String(Math.max(Math.round(ms), run.first_ms ?? run.last_ms));
    show({ page: route.page, params: { ...route.params, at } }, 'replace');
  };
  addEventListener('popstate', () => show(muster.source.route()));
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a[data-go]');
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const before = location.href;
    history.pushState(null, '', link.href);
    if (location.href === before && link.href !== before) return;
    show(muster.source.route()).then(() => { scrollTo(0, 0); });
  });

  // Drawing

  function draw() {
    if (content.run) head = content;
    muster.live.take(content.live);
    const top = document.getElementById('top');
    const focused = document.activeElement, slid = focused && focused.id === 'moment', searched = focused && focused.id === 'search';
    const chosen = focused && focused.matches('main .row-link') ? focused.getAttribute('href') : null;
    const main = document.getElementById('main'), had = main.querySelectorAll('table.groups > tbody > tr').length;
    top.replaceChildren(...topOf());
    main.className = content.page;
    main.replaceChildren(...[muster.views[content.page](content, route)].flat().filter(Boolean));
    const name = { overview: 'groups', group: content.group && content.group.group_id, topic: content.topic, findings: 'findings' }[content.page] || 'muster';
    document.title = `${name} · muster`;
    if (slid) document.getElementById('moment').focus();
    if (searched && document.getElementById('search')) document.getElementById('search').focus();
    if (content.page === 'overview') muster.showRows(had);
    const again = chosen && [...main.querySelectorAll('.row-link')].find((link) => link.getAttribute('href') === chosen);
    if (again) again.focus({ preventScroll: true });
  }

  // A page of now that is left open: a newer run is shown, unless details are open or text is selected.
  async function renew() {
    if (document.hidden || !content.is_now || document.querySelector('details[open], dialog[open]') || !getSelection().isCollapsed) return;
    const mine = loading, found = await muster.source.run();
    if (!found || mine !== loading || !content.is_now) return;
    if (found.run_id !== content.run.run_id || String(found.history_days) !== String(content.history_days)) await show(route);
  }

  function found() {
    const counts = (head && head.findings_by_severity) || {};
    return ['Findings', ['error', 'warning', 'info'].filter((severity) => counts[severity]).map((severity) => h('span', { class: `pill ${{ error: 'err', warning: 'warn', info: 'info' }[severity]}`, title: `${counts[severity]} of severity ${severity}` }, muster.number(counts[severity])))];
  }

  function topOf() {
    const place = (page, text) => muster.link({ page, params: {} }, { 'aria-current': route.page === page ? 'page' : null }, text);
    return [
      h('nav', {}, muster.link({ page: 'overview', params: {} }, { class: 'brand' }, 'muster'), place('overview', 'Groups'), place('findings', found()),
        h('span', { class: 'cluster faint' }, head && head.run.cluster_id ? `cluster ${head.run.cluster_id}` : ''),
        h('button', { type: 'button', id: 'theme', title: 'Light or dark (t)', 'aria-label': 'Light or dark', onclick: toggleTheme }, '◐'),
        h('button', { type: 'button', id: 'help-button', title: 'Keys (?)', 'aria-label': 'Keys', onclick: help }, '?')),
      head ? slider() : null, muster.live.bar(),
    ].filter(Boolean);
  }

  function slider() {
    const { first_ms: first, last_ms: last, step_ms: step } = head.run, moments = muster.source.moments;
    const told = h('output', { for: 'moment', class: 'moment', 'aria-live': 'off' });
    const since = (ms) => muster.duration(Math.max(Date.now() - ms, 0)), read = head.run.observed_at_ms;
    const ofNow = (ms) => (read - ms > OLDER_MS ? ` the newest record; read ${since(read)} ago` : ` last look, ${since(ms)} ago`);
    const isOld = () => muster.source.run && Date.now() - read > OLD_MS; // a file is as old as it is
    const tell = (ms, isNow) => {
      told.replaceChildren(h('b', {}, muster.fullTime(ms)), h('span', { class: isNow && isOld() ? 'amiss' : 'faint' }, isNow ? ofNow(ms) : ` ${muster.duration(last - ms)} before the last look`));
    };
    tell(head.at_ms, head.is_now);
    const now = head.at_ms;
    tick = () => { if (head.is_now && (first === null || Number(input.value) === Number(input.max))) tell(now, true); };
    const input = h('input', { type: 'range', id: 'moment', 'aria-label': 'As of which moment', disabled: first === null });
    const momentOf = () => (moments ? moments[Number(input.value)] : Number(input.value) * step + first);
    if (first !== null) {
      input.min = 0;
      input.max = moments ? moments.length - 1 : Math.ceil((last - first) / step);
      input.step = 1;
      input.value = moments ? (head.is_now ? moments.length - 1 : moments.indexOf(head.at_ms)) : head.is_now ? input.max : Math.round((head.at_ms - first) / step);
      input.addEventListener('input', () => tell(Math.min(momentOf(), last), Number(input.value) === Number(input.max)));
      input.addEventListener('change', () => muster.setMoment(Number(input.value) === Number(input.max) ? null : momentOf()));
    }
    const days = head.history_days;
    return h('div', { class: `slider${head.is_now ? '' : ' past'}` }, input, told,
      h('button', { type: 'button', id: 'now', disabled: head.is_now, onclick: () => muster.setMoment(null) }, head.is_now ? 'newest' : 'to the newest'),
      muster.source.note(), days && days[0] < days[1] ? h('span', { class: 'faint' }, `history is being added up: ${days[0]} of ${days[1]} days`) : null);
  }

  // The keyboard

  const KEYS = [['/', 'search'], ['↓ ↑', 'next and previous group'], ['Enter', 'open it'], ['← →', 'an earlier, a later moment'], ['n', 'the newest moment'], ['Escape', 'back to all groups; empty the search'], ['g f', 'groups, findings'], ['t', 'light or dark'], ['?', 'this help']];
  function help() {
    const dialog = h('dialog', { id: 'help', 'aria-label': 'Keys' }, h('h2', {}, 'Keys'), h('dl', {}, KEYS.map(([key, what]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, what)])),
      h('p', { class: 'faint' }, 'A click into a plot goes to that moment. Every page has its content as JSON at its address with .json.'),
      h('form', { method: 'dialog' }, h('button', {}, 'Close')));
    dialog.querySelector('form').addEventListener('submit', (event) => { event.preventDefault(); dialog.close(); });
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  function step(by) {
    const input = document.getElementById('moment');
    if (!input || input.disabled) return;
    const before = input.value;
    if (by < 0) input.stepDown(); else input.stepUp();
    if (input.value !== before) input.dispatchEvent(new Event('change'));
  }

  function move(by) {
    const links = [...document.querySelectorAll('main .row-link')];
    if (!links.length) return;
    const place = links.indexOf(document.activeElement);
    const next = links[Math.min(Math.max(place + by, 0), links.length - 1)];
    next.focus();
    next.scrollIntoView({ block: 'nearest' });
  }

  const ACTIONS = {
    '/': () => { const search = document.getElementById('search'); if (search) { search.focus(); search.select(); } else muster.go({ page: 'overview', params: { at: muster.at() } }).then(() => document.getElementById('search').focus()); },
    ArrowDown: () => move(1), ArrowUp: () => move(-1), ArrowLeft: () => step(-1), ArrowRight: () => step(1),
    n: () => muster.setMoment(null), t: toggleTheme, '?': help,
    g: () => muster.go({ page: 'overview', params: { at: muster.at() } }), f: () => muster.go({ page: 'findings', params: { at: muster.at() } }),
    Escape: () => { if (route.page !== 'overview') muster.go({ page: 'overview', params: { at: muster.at() } }); else muster.replace({ q: '', verdict: '' }); },
  };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
    const target = event.target, isText = target.id === 'search';
    if (isText && event.key === 'Escape') { target.value = ''; target.dispatchEvent(new Event('input')); target.blur(); event.preventDefault(); return; }
    if (isText && !['ArrowDown', 'Enter'].includes(event.key)) return;
    if (isText && event.key === 'Enter') { const first = document.querySelector('main .row-link'); if (first) first.click(); event.preventDefault(); return; }
    if (target.id === 'moment' && event.key.startsWith('Arrow')) return;
    const action = ACTIONS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });

  // Light and dark

  function setTheme(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    try { localStorage.setItem('muster-theme', theme); } catch { /* a file, or storage is off: until the page is closed */ }
  }
  function toggleTheme() {
    const isDark = (document.documentElement.dataset.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light')) === 'dark';
    setTheme(isDark ? 'light' : 'dark');
  }
  try { const kept = localStorage.getItem('muster-theme'); if (kept === 'light' || kept === 'dark') document.documentElement.dataset.theme = kept; } catch { /* as above */ }

  muster.renewLive = (live, isDrawn) => { content.live = live; if (isDrawn) draw(); else muster.live.take(live); };
  muster.redraw = () => { draw(); };
  muster.begin = () => { draw(); };
  muster.renew = renew;
  setInterval(() => { if (!document.hidden) tick(); }, TICK_MS);
  if (muster.source.run) setInterval(renew, RENEW_EVERY_MS);
  if (muster.source.begin) muster.source.begin().then(() => show(muster.source.route())); else muster.begin();
})();
