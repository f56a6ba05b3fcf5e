//! How the servers of an upstream read a path: what is one path to a framework, and two texts.
//!
//! Some of it is sure: [`PathReading::without_parameters`] is what they take for the path.
//! [`PathReading::forms`] are the texts that this may stand for. A route takes a path if its
//! pattern matches one of them, and counters count the last one, in which most spellings meet.

mod forms;

use std::fmt;

use tollgate_keyword::{Keyword, keywords};

pub(crate) use self::forms::{is_index, is_script, split_query};

/// How the servers of an upstream read a path, beyond what all of them do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathReading {
    /// What serves the upstream; none: nobody says.
    pub framework: Option<Framework>,
    /// Whether letters differ by case.
    pub case: LetterCase,
    /// What a slash at the end means.
    pub trailing_slash: TrailingSlash,
    /// What `;x` is in a segment.
    pub matrix_params: MatrixParams,
    /// What `.json` is at the end of the last segment.
    pub suffix: Suffix,
    /// What follows the name of a script.
    pub path_info: PathInfo,
}

/// Whether letters differ by case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LetterCase {
    /// `/ADMIN` is another path than `/admin`.
    #[default]
    Exact,
    /// They are one.
    Ignore,
}

keywords! { LetterCase { Exact = "exact", Ignore = "ignore" } }

/// What a slash at the end means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrailingSlash {
    /// Nothing: `/login/` is `/login`.
    #[default]
    Ignore,
    /// An empty segment, to routes that have `{name}` or `*` there, and else nothing: `/users/` is
    /// one of `/users/{id}`, as for Fastify.
    Segment,
}

keywords! { TrailingSlash { Ignore = "ignore", Segment = "segment" } }

/// What follows a semicolon in a segment (matrix parameters, RFC 3986 section 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatrixParams {
    /// A part of the segment.
    #[default]
    Keep,
    /// Nothing: `/login;x=1` is `/login`, as for servlet containers.
    Strip,
    /// The query: `/login;x/y` is `/login`, as for Fastify up to version 4.
    Query,
}

keywords! { MatrixParams { Keep = "keep", Strip = "strip", Query = "query" } }

/// What follows a dot in the last segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Suffix {
    /// A part of the segment.
    #[default]
    Keep,
    /// The format of the response: `/login.json` is `/login`, as for Rails.
    Ignore,
}

keywords! { Suffix { Keep = "keep", Ignore = "ignore" } }

/// What follows the name of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathInfo {
    /// Segments like others.
    #[default]
    Keep,
    /// What the script may read: `/login.php/x` is `/login.php`. `index.php` stands for its folder,
    /// and for what follows it: `/index.php/login` is `/login`.
    Strip,
}

keywords! { PathInfo { Keep = "keep", Strip = "strip" } }

/// Frameworks and servers of which it is known how they read a path; see `docs/frameworks.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// Express, for Node.
    Express,
    /// Koa with `@koa/router`, for Node.
    Koa,
    /// Fastify, for Node.
    Fastify,
    /// Hono, for Node and others.
    Hono,
    /// FastAPI and Starlette.
    FastApi,
    /// Flask and Werkzeug.
    Flask,
    /// Django.
    Django,
    /// aiohttp.
    AioHttp,
    /// Ruby on Rails.
    Rails,
    /// Spring, and what else runs in a servlet container.
    Spring,
    /// ASP.NET.
    AspNet,
    /// Files of PHP.
    Php,
    /// Go's own router.
    Go,
}

keywords! {
    Framework {
        Express = "express",
        Koa = "koa",
        Fastify = "fastify",
        Hono = "hono",
        FastApi = "fastapi",
        Flask = "flask",
        Django = "django",
        AioHttp = "aiohttp",
        Rails = "rails",
        Spring = "spring",
        AspNet = "aspnet",
        Php = "php",
        Go = "go",
    }
}

impl PathReading {
    /// What servers find in a path that take a semicolon for the start of the query.
    pub fn query_in(self, path: &str) -> Option<&str> {
        match self.matrix_params {
            MatrixParams::Query => split_query(path).1,
            MatrixParams::Keep | MatrixParams::Strip => None,
        }
    }

    /// Whether servers may take a POST for the method that `_method` names in its query: on their
    /// own (Symfony and Laravel, Spring), or by a middleware that is usual there. Rails, Django,
    /// Flask and others look for it in a form alone, or nowhere.
    pub fn reads_method_in_query(self) -> bool {
        self.framework.is_some_and(|framework| match framework {
            Framework::Express
            | Framework::Koa
            | Framework::Hono
            | Framework::Spring
            | Framework::AspNet
            | Framework::Php
            | Framework::Go => true,
            Framework::Fastify
            | Framework::FastApi
            | Framework::Flask
            | Framework::Django
            | Framework::AioHttp
            | Framework::Rails => false,
        })
    }

    /// How a framework reads a path by default. A reading of old versions alone is not among them:
    /// to the others, what a route takes too much is a path of another handler.
    pub fn of(framework: Framework) -> PathReading {
        let plain = PathReading { framework: Some(framework), ..PathReading::default() };
        match framework {
            Framework::Express | Framework::Koa | Framework::AspNet => {
                PathReading { case: LetterCase::Ignore, ..plain }
            }
            Framework::Fastify => PathReading {
                trailing_slash: TrailingSlash::Segment,
                // Of version 4. Others get what it takes for the query as a query.
                matrix_params: MatrixParams::Query,
                ..plain
            },
            Framework::Rails => PathReading { suffix: Suffix::Ignore, ..plain },
            Framework::Spring => PathReading { matrix_params: MatrixParams::Strip, ..plain },
            Framework::Php => PathReading { path_info: PathInfo::Strip, ..plain },
            Framework::Hono
            | Framework::FastApi
            | Framework::Flask
            | Framework::Django
            | Framework::AioHttp
            | Framework::Go => plain,
        }
    }

    /// Whether a path stands for nothing but itself.
    pub fn is_literal(self) -> bool {
        PathReading { framework: None, ..self } == PathReading::default()
    }
}

impl fmt::Display for PathReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathReading { framework, case, trailing_slash, matrix_params, suffix, path_info } =
            self;
        if let Some(framework) = framework {
            write!(f, "{}: ", framework.keyword())?;
        }
        let (case, trailing_slash) = (case.keyword(), trailing_slash.keyword());
        let (matrix_params, suffix) = (matrix_params.keyword(), suffix.keyword());
        let path_info = path_info.keyword();
        write!(
            f,
            "case {case}, trailing_slash {trailing_slash}, matrix_params {matrix_params}, \
             suffix {suffix}, path_info {path_info}"
        )
    }
}
