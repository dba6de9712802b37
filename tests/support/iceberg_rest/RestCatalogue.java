package org.apache.iceberg.rest; // its routes are not public

import jakarta.servlet.DispatcherType;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.ErrorResponseParser;
import org.apache.iceberg.rest.responses.LoadTableResponse;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Serves Iceberg's reference REST catalogue on the loopback interface.
 *
 * <p>Arguments: the port, the bearer token that every request must have, then properties of the
 * catalogue behind it, each NAME=VALUE. A property that begins with "vended." is given to clients,
 * without this prefix, with each table.
 */
public class RestCatalogue {
  private static final String VENDED = "vended.";

  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    Map<String, String> vended = new HashMap<>();
    for (int at = 2; at < arguments.length; at++) {
      String[] parts = arguments[at].split("=", 2);
      if (parts[0].startsWith(VENDED)) {
        vended.put(parts[0].substring(VENDED.length()), parts[1]);
      } else {
        properties.put(parts[0], parts[1]);
      }
    }
    Catalog catalog = CatalogUtil.buildIcebergCatalog("behind", properties, new Configuration());
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    RESTCatalogServlet servlet = new RESTCatalogServlet(new Adapter(catalog, vended));
    context.addServlet(new ServletHolder(servlet), "/*");
    FilterHolder filter = new FilterHolder(new TokenFilter(arguments[1]));
    context.addFilter(filter, "/*", EnumSet.of(DispatcherType.REQUEST));
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
    server.setHandler(context);
    server.start();
    server.join();
  }

  private static class TokenFilter extends HttpFilter {
    private final String expected;

    TokenFilter(String token) {
      this.expected = "Bearer " + token;
    }

    @Override
    protected void doFilter(
        HttpServletRequest request, HttpServletResponse response, FilterChain chain)
        throws IOException, ServletException {
      if (expected.equals(request.getHeader("Authorization"))) {
        chain.doFilter(request, response);
        return;
      }
      ErrorResponse refusal =
          ErrorResponse.builder()
              .responseCode(401)
              .withType("NotAuthorizedException")
              .withMessage("Not authorized: the token is wrong")
              .build();
      response.setStatus(401);
      response.setContentType("application/json");
      response.getWriter().write(ErrorResponseParser.toJson(refusal));
    }
  }

  private static class Adapter extends RESTCatalogAdapter {
    private final Map<String, String> vended;

    Adapter(Catalog catalog, Map<String, String> vended) {
      super(catalog);
      this.vended = vended;
    }

    @Override
    public <T extends RESTResponse> T handleRequest(
        Route route,
        Map<String, String> variables,
        HTTPRequest request,
        Class<T> responseType,
        Consumer<Map<String, String>> responseHeaders) {
      T response = super.handleRequest(route, variables, request, responseType, responseHeaders);
      if (response instanceof LoadTableResponse table) {
        table.config().putAll(vended);
      }
      return response;
    }
  }
}
