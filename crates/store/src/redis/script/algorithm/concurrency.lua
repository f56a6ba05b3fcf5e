-- limit: leases. span: how long a lease is valid.
--
-- Stored: a sorted set of receipts by the expiry of their leases, so that counting many leases
-- takes no longer than counting few. A receipt is the instant of the charge, and a number that
-- makes receipts of one microsecond distinct.
local function receipt(at, number)
  return pack('<dI4', at, number)
end

local function text(instant)
  return string.format('%.0f', instant)
end

algorithms[KIND] = {
  load = function(c) end,

  open = function(c)
    c.used = call('ZCOUNT', c.key, '(' .. text(now), '+inf')
    c.fits = c.used + c.cost <= c.limit
  end,

  take = function(c)
    local expires = text(now + c.span)
    call('ZREMRANGEBYSCORE', c.key, '-inf', text(now))
    c.number = 0
    while call('ZADD', c.key, 'NX', expires, receipt(now, c.number)) == 0 do
      c.number = c.number + 1
    end
    c.used = c.used + 1
  end,

  on_denied = function(c)
    local latest = '(' .. text(now + c.span + MAX_SKEW)
    local ahead = call('ZRANGEBYSCORE', c.key, latest, '+inf')
    for _, lease in ipairs(ahead) do
      call('ZADD', c.key, 'XX', text(now + c.span), lease)
    end
    return #ahead > 0
  end,

  save = function(c)
    local last = call('ZRANGE', c.key, '-1', '-1', 'WITHSCORES')
    call('PEXPIRE', c.key, ttl(tonumber(last[2])))
  end,

  reply = function(c)
    return pack('<ddd', c.used, now, c.number or 0)
  end,
}

if opcode == GIVE_BACK then
  algorithms[KIND].give_back = function(c, at, number)
    call('ZREM', c.key, receipt(at, number))
    return false
  end
end

if opcode == RENEW then
  algorithms[KIND].renew = function(c, at, number)
    local lease = receipt(at, number)
    local expires = tonumber(call('ZSCORE', c.key, lease) or 0)
    if expires <= now then
      return false
    end
    call('ZADD', c.key, 'XX', text(max(expires, now + c.span)), lease)
    return true
  end
end

if opcode == ADD then
  algorithms[KIND].add = function(c)
    return false
  end
end
