-- limit: units in a window. span: steps in a window. x: microseconds in a step.
algorithms[KIND] = {
  load = function(c)
    local value = get(c, 16)
    if value then
      c.current, c.previous, c.expires = unpack('<I4I4d', value)
    else
      c.current, c.previous, c.expires = 0, 0, 0
    end
  end,

  open = function(c)
    local length = c.span * c.x
    local start = now - now % length
    local last = max(0, c.expires - 2 * length)
    if now >= c.expires then
      c.current, c.previous = 0, 0
    elseif last > now + tolerated_skew(length) then
      c.previous, c.healed = 0, true
    elseif last >= start then
      start = last
    else
      c.current, c.previous = 0, c.current
    end
    c.expires = start + 2 * length

    local elapsed = min(floor(max(0, now - start) / c.x), c.span)
    local weighed = ceil(min(c.previous, c.limit) * (c.span - elapsed) / c.span)
    c.fits = c.current + weighed + c.cost <= c.limit
  end,

  take = function(c)
    c.current = min(c.current + c.cost, MOST)
  end,

  on_denied = function(c)
    return c.healed
  end,

  save = function(c)
    set(c, pack('<I4I4d', c.current, c.previous, c.expires), c.expires)
  end,

  reply = function(c)
    return pack('<ddd', c.current, c.previous, c.expires)
  end,
}

if opcode == GIVE_BACK then
  algorithms[KIND].give_back = function(c, at)
    if c.expires == at then
      c.current = max(0, c.current - c.cost)
    elseif c.expires == at + c.span * c.x then
      c.previous = max(0, c.previous - c.cost)
    else
      return false
    end
    return true
  end
end

if opcode == SEED then
  -- Makes the window that expires then the current one. The clock may be slightly behind it.
  local function reach(c, expires)
    local ahead = expires - c.expires
    if ahead > 0 then
      c.previous = ahead == c.span * c.x and c.current or 0
      c.current, c.expires = 0, expires
    end
  end

  algorithms[KIND].join = function(c, numbers)
    local other = { limit = c.limit, span = c.span, x = c.x, cost = 0 }
    other.current, other.previous, other.expires = numbers[1], numbers[2], numbers[3]
    algorithms[KIND].open(c)
    algorithms[KIND].open(other)
    reach(c, other.expires)
    reach(other, c.expires)
    local is_more, weighs_more = other.current > c.current, other.previous > c.previous
    c.current, c.previous = max(c.current, other.current), max(c.previous, other.previous)
    return is_more or weighs_more, is_more
  end
end

if opcode == ADD then
  algorithms[KIND].add = function(c, numbers)
    local other = { limit = c.limit, span = c.span, x = c.x, cost = 0 }
    other.current, other.previous, other.expires = numbers[1], numbers[2], numbers[3]
    algorithms[KIND].open(c)
    algorithms[KIND].open(other)
    c.current = min(c.current + other.current, MOST)
    c.previous = min(c.previous + other.previous, MOST)
    return true
  end
end
