-- limit: leases. span: how long a lease is good.
--
-- A sorted set of receipts by when their leases expire: counting them must not take longer when they
-- are many. A receipt is the instant and, among those granted in the same microsecond, a number.
local function receipt(at, number)
  return pack('<dI4', at, number)
end

local function text(instant)
  return string.format('%.0f', instant)
end

algorithms[6] = {
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

  penalize = function(c)
    local latest = '(' .. text(now + c.span + SKEW)
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

  tell = function(c)
    return pack('<ddd', c.used, now, c.number or 0)
  end,
}

if word == GIVE_BACK then
  algorithms[6].give_back = function(c, at, number)
    call('ZREM', c.key, receipt(at, number))
    return false
  end
end

if word == RENEW then
  algorithms[6].renew = function(c, at, number)
    local lease = receipt(at, number)
    local expires = tonumber(call('ZSCORE', c.key, lease) or 0)
    if expires <= now then
      return false
    end
    call('ZADD', c.key, 'XX', text(max(expires, now + c.span)), lease)
    return true
  end
end

if word == ADD then
  algorithms[6].add = function(c)
    return false
  end
end
