# The same routes in Rails: ruby servers.rb PORT
#
# A handler answers with its name, its parameter, and the route that the proxy says it took (x-route).

# In development, it has pages of its own.
ENV['RAILS_ENV'] = 'production'

require 'erb'
require 'logger'
require 'stringio'
require 'action_controller/railtie'
require 'puma'
require 'puma/server'

ROUTES = {
  'login' => '/login', 'admin' => '/admin/users', 'me' => '/users/@me', 'cancel' => '/v1/:verb',
  'user' => '/users/:id', 'report' => '/health.json', 'health' => '/health'
}.freeze

def handler(name)
  lambda do |env|
    id = env['action_dispatch.request.path_parameters'][:id]
    id = id ? ERB::Util.url_encode(id) : '-'
    [200, { 'content-type' => 'text/plain' }, ["#{name} #{id} #{env['HTTP_X_ROUTE'] || '-'}\n"]]
  end
end

class Application < Rails::Application
  config.eager_load = false
  config.consider_all_requests_local = false
  config.secret_key_base = 'of a test'
  config.logger = Logger.new(File::NULL)
  config.hosts.clear
end

Application.initialize!
Application.routes.draw do
  ROUTES.each { |name, path| match path, to: handler(name), via: :all, constraints: { verb: /jobs:cancel/ } }
end

server = Puma::Server.new(Application, Puma::Events.new(StringIO.new, StringIO.new))
server.add_tcp_listener('127.0.0.1', Integer(ARGV[0]))
server.run.join
