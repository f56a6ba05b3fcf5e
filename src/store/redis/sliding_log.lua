-- limit: units in any span. span: how long a unit counts.
--
-- Stored: the units of all entries and the number of the next one, and then the entries, oldest
-- first, each with its instant, cost and number. One string, for that takes the least memory and the
-- fewest commands as long as the limit is small.
local HEAD, ENTRY = 16, 20

local function entry(c, i)
  return unpack('<dI4d', c.entries, ENTRY * (i - 1) + 1)
end

local function entries(c, first, last)
  return string.sub(c.entries, ENTRY * (first - 1) + 1, ENTRY * last)
end

-- The instant of the entry with whose end so many units no longer count; -1: they are not so many.
local function leaving(c, units)
  local i, sum = c.first, 0
  while i <= c.count do
    local at, cost = entry(c, i)
    sum = sum + cost
    if sum >= units then
      return min(at, c.time)
    end
    i = i + 1
  end
  return -1
end

-- Moves entries that are ahead of the log's time to it.
local function heal(c)
  local kept, parts = c.count, {}
  while kept > 0 and entry(c, kept) > c.time do
    kept = kept - 1
  end
  if kept == c.count then
    return false
  end
  parts[1] = entries(c, 1, kept)
  for i = kept + 1, c.count do
    local _, cost, number = entry(c, i)
    parts[#parts + 1] = pack('<dI4d', c.time, cost, number)
  end
  c.entries = table.concat(parts)
  return true
end

algorithms[3] = {
  load = function(c)
    local value = call('GET', c.key)
    if value and #value >= HEAD and (#value - HEAD) % ENTRY == 0 then
      c.units, c.next = unpack('<dd', value)
      c.entries = string.sub(value, HEAD + 1)
    else
      c.units, c.next, c.entries = 0, 0, ''
    end
    c.count = #c.entries / ENTRY
  end,

  open = function(c)
    c.time, c.first, c.used = now, 1, c.units
    if c.count > 0 then
      local newest = entry(c, c.count)
      if newest <= now + SKEW then
        c.time = max(newest, now)
      end
    end
    while c.first <= c.count do
      local at, cost = entry(c, c.first)
      if c.time - at < c.span then
        break
      end
      c.used = c.used - cost
      c.first = c.first + 1
    end
    c.fits = c.used + c.cost <= c.limit
  end,

  take = function(c)
    heal(c)
    c.entries = entries(c, c.first, c.count)
    c.count, c.first, c.units = c.count - c.first + 1, 1, c.used
    local taken = c.cost
    if c.count >= c.limit and c.count > 0 then
      local _, cost, number = entry(c, c.count)
      taken = min(c.cost, MOST - cost)
      c.number = number
      c.entries = entries(c, 1, c.count - 1) .. pack('<dI4d', c.time, cost + taken, number)
    else
      c.number, c.next, c.count = c.next, c.next + 1, c.count + 1
      c.entries = c.entries .. pack('<dI4d', c.time, taken, c.number)
    end
    c.units = c.units + taken
    c.used = c.units
  end,

  penalize = heal,

  save = function(c)
    local ends = c.count > 0 and entry(c, c.count) + c.span or 0
    set(c, pack('<dd', c.units, c.next) .. c.entries, ends)
  end,

  -- The units that count, the instants of the newest entry and of those that must leave before one
  -- unit, or the cost, fits; and the receipt.
  tell = function(c)
    local newest, one, all = -1, -1, -1
    if c.used > 0 and c.count > 0 then
      newest = min(entry(c, c.count), c.time)
    end
    if c.used >= c.limit then
      one = leaving(c, c.used + 1 - c.limit)
    end
    if not c.fits and c.cost <= c.limit then
      all = leaving(c, c.used + c.cost - c.limit)
    end
    return pack('<dddddd', c.used, newest, one, all, c.time, c.number or 0)
  end,
}

if word == GIVE_BACK then
  algorithms[3].give_back = function(c, at, number)
    local low, high = 1, c.count
    while low < high do
      local middle = floor((low + high) / 2)
      local _, _, of_middle = entry(c, middle)
      if of_middle < number then
        low = middle + 1
      else
        high = middle
      end
    end
    if low > c.count then
      return false
    end
    local of_low, cost, number_of_low = entry(c, low)
    if number_of_low ~= number or of_low ~= at then
      return false
    end
    local back = min(c.cost, cost)
    local rest = back < cost and pack('<dI4d', at, cost - back, number) or ''
    c.entries = entries(c, 1, low - 1) .. rest .. entries(c, low + 1, c.count)
    c.count, c.units = #c.entries / ENTRY, c.units - back
    return true
  end
end

if word == SEED then
  algorithms[3].adopt = function(c, used, newest)
    c.units, c.next, c.count = used, 1, 1
    c.entries = pack('<dI4d', newest, used, 0)
    return newest + c.span
  end
end
