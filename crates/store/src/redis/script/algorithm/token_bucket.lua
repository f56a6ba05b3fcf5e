-- limit: the capacity. span: the time from one refill to the next. x: units in a refill. y: 1 if it
-- is strict.

-- When units will have been refilled after the refill at mark.
local function refilled_at(c, units, mark)
  if units == 0 then
    return mark
  elseif c.x == 0 then
    return NEVER
  end
  return min(mark + ceil(units / c.x) * c.span, NEVER)
end

-- A bucket with all refills until now.
local function refilled(c, deficit, mark, full)
  if now >= full then
    return 0, now, now
  elseif mark > now + tolerated_skew(c.span) then
    return deficit, now, refilled_at(c, deficit, now)
  end
  local refills = floor(max(0, now - mark) / c.span)
  local rest = deficit - refills * c.x
  if rest <= 0 then
    return 0, now, now
  end
  return rest, mark + refills * c.span, full
end

algorithms[KIND] = {
  load = function(c)
    local value = get(c, 20)
    if value then
      c.deficit, c.mark, c.full = unpack('<I4dd', value)
    else
      c.deficit, c.mark, c.full = 0, 0, 0
    end
  end,

  open = function(c)
    c.healed = c.mark > now + tolerated_skew(c.span)
    c.deficit, c.mark, c.full = refilled(c, c.deficit, c.mark, c.full)
    c.fits = c.deficit + c.cost <= c.limit
  end,

  take = function(c)
    c.deficit = min(c.deficit + c.cost, MOST)
    if c.y == 1 and c.deficit >= c.limit then
      c.mark = max(c.mark, now)
    end
    c.full = refilled_at(c, c.deficit, c.mark)
  end,

  on_denied = function(c)
    if c.y == 1 and c.cost >= 1 and c.cost <= c.limit then
      c.mark = max(c.mark, now)
      c.full = refilled_at(c, c.deficit, c.mark)
      return true
    end
    return c.healed
  end,

  save = function(c)
    set(c, pack('<I4dd', c.deficit, c.mark, c.full), c.full)
  end,

  reply = function(c)
    return pack('<ddd', c.deficit, c.mark, c.full)
  end,
}

if opcode == GIVE_BACK then
  algorithms[KIND].give_back = function(c, at, charged)
    c.deficit, c.mark, c.full = refilled(c, c.deficit, c.mark, c.full)
    local missing = refilled(c, charged, at, refilled_at(c, charged, at))
    local back = min(c.cost, missing, c.deficit)
    if back <= 0 then
      return false
    end
    c.deficit = c.deficit - back
    -- The units that were given back are those that would have been refilled last.
    c.full = min(refilled_at(c, c.deficit, c.mark), c.full)
    return true
  end
end

if opcode == SEED then
  algorithms[KIND].join = function(c, numbers)
    local rest, _, ends = refilled(c, c.deficit, c.mark, c.full)
    local deficit, mark, full = refilled(c, numbers[1], numbers[2], numbers[3])
    local is_more = deficit > rest or (deficit == rest and full > ends)
    if is_more then
      c.deficit, c.mark, c.full = deficit, mark, full
    end
    return is_more, is_more
  end
end

if opcode == ADD then
  algorithms[KIND].add = function(c, numbers)
    c.deficit, c.mark, c.full = refilled(c, c.deficit, c.mark, c.full)
    local deficit, mark = refilled(c, numbers[1], numbers[2], numbers[3])
    if deficit == 0 then
      return false
    end
    c.mark = c.deficit > 0 and c.mark or mark
    c.deficit = min(c.deficit + deficit, MOST)
    c.full = refilled_at(c, c.deficit, c.mark)
    return true
  end
end
